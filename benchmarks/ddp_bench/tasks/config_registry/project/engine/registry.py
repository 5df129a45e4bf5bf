DATASETS, MODELS = {}, {}


def register(table):
    def add(cls):
        table[cls.__name__] = cls
        return cls

    return add


def build(table, section, *args):
    return table[section["name"]](*args, **section.get("args", {}))
