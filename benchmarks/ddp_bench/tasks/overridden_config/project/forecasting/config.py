import importlib
import re


def parse(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def load(path, overrides):
    """Nested sections from lines `a.b: value`, with overrides `a.b=value` and references `${a.b}`."""
    flat = {}
    with open(path) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                key, value = line.split(":", 1)
                flat[key.strip()] = value.strip()
    flat.update(item.split("=", 1) for item in overrides)
    config = {}
    for key, value in flat.items():
        value = re.sub(r"\$\{([^}]+)\}", lambda match: flat[match.group(1)], value)
        section = config
        *path, last = key.split(".")
        for part in path:
            section = section.setdefault(part, {})
        section[last] = parse(value)
    return config


def instantiate(section, *args, **more):
    module, _, name = section["_target_"].rpartition(".")
    options = {k: v for k, v in section.items() if k != "_target_"}
    return getattr(importlib.import_module(module), name)(*args, **options, **more)
