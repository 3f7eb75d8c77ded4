"""The tariff pack: classification of goods in the US tariff schedule, refusals, forbidden codes, savings claims."""
