"""The tariff pack: classification of goods in the US tariff schedule, refusals, forbidden codes, savings claims."""

FILES = {"hts": "The file of the tariff schedule, relative to rootdir, for targets that look up goods in it."}
"""Files that a target may need; see `pytest_packbench.packs.target_files`."""
