"""What a pack and a target have to be: the only part of the engine that packs know."""
