"""Calls a component with plain Python values: dicts, lists, tuples, None.

A record is a dict with field names in snake_case. A variant is a case name, or a pair of the case name and its
payload. A result is returned as its value, or raised as `Refused`.
"""

from wasmtime import Config, Engine, Store, WasiConfig
from wasmtime.component import (
    Component,
    Linker,
    ListType,
    OptionType,
    Record,
    RecordType,
    ResultType,
    Variant,
    VariantType,
)


class Refused(Exception):
    """The `error` record of the package `lambda-lock:lock`. `blocked` is that of a call for several locks."""

    def __init__(self, error):
        self.blocked = error.get("blocked", [])
        error = error.get("error", error)
        super().__init__(error["message"])
        self.error = error
        kind = error["kind"]
        self.kind, self.payload = kind if isinstance(kind, tuple) else (kind, None)


class Instance:
    """One instance of a component. It makes one call at a time."""

    def __init__(self, path, interface):
        engine = Engine(Config())
        self.store = Store(engine)
        self.store.set_wasi(WasiConfig())
        self.store.set_wasi_http()
        linker = Linker(engine)
        linker.add_wasip2()
        linker.add_wasi_http()
        component = Component.from_file(engine, str(path))
        self.instance = linker.instantiate(self.store, component)
        self.interface = self.instance.get_export_index(self.store, interface)
        self.functions = {}

    def call(self, name, *arguments):
        """Calls a function of the interface, such as `[method]client.peek`."""
        function, type = self._function(name)
        lowered = [to_wit(of, value) for (_, of), value in zip(type.params, arguments, strict=True)]
        returned = function(self.store, *lowered)
        function.post_return(self.store)
        return from_wit(type.result, returned) if type.result else None

    def _function(self, name):
        if name not in self.functions:
            index = self.instance.get_export_index(self.store, name, self.interface)
            function = self.instance.get_func(self.store, index)
            self.functions[name] = function, function.type(self.store)
        return self.functions[name]


class Resource:
    """A resource of the component. It is dropped at the end of a `with`."""

    name = None

    def __init__(self, instance, handle):
        self.instance, self.handle = instance, handle

    def call(self, method, *arguments):
        return self.instance.call(f"[method]{self.name}.{method}", self.handle, *arguments)

    def drop(self):
        self.handle.drop(self.instance.store)


def to_wit(type, value):
    """Converts a plain value to the form of wasmtime."""
    if isinstance(type, RecordType):
        record = Record()
        for name, of in type.fields:
            setattr(record, name, to_wit(of, value.get(snake(name))))
        return record
    if isinstance(type, ListType):
        # Bytes stay bytes. Other lists are converted element by element.
        return value if isinstance(value, bytes) else [to_wit(type.element, each) for each in value]
    if isinstance(type, OptionType):
        case = ("none", None) if value is None else ("some", to_wit(type.payload, value))
    elif isinstance(type, VariantType):
        name, payload = value if isinstance(value, tuple) else (value, None)
        of = dict(type.cases)[name]
        case = name, to_wit(of, payload) if of else None
    else:
        return value.handle if isinstance(value, Resource) else value
    # wasmtime needs the case name only if the value alone does not identify the case.
    return Variant(*case) if type._tagged() else case[1]


def from_wit(type, value):
    """Converts what wasmtime returned to a plain value. An `err` is raised."""
    if isinstance(type, RecordType):
        return {snake(name): from_wit(of, getattr(value, name)) for name, of in type.fields}
    if isinstance(type, ListType):
        return value if isinstance(value, bytes) else [from_wit(type.element, each) for each in value]
    if isinstance(type, (OptionType, ResultType, VariantType)):
        name, of, payload = case(type, value)
        payload = from_wit(of, payload) if of else None
        if isinstance(type, VariantType):
            return (name, payload) if of else name
        if name == "err":
            raise Refused(payload)
        return payload
    return value


def case(type, value):
    """Returns the case of a variant that a value belongs to: its name, its type, its payload."""
    tagged = type._tagged()
    for name, of in cases(type):
        if tagged:
            if value.tag == name:
                return name, of, getattr(value, "payload", None)
        elif of is None:
            if value is None:
                return name, None, None
        else:
            classes = set()
            of.add_classes(classes)
            if isinstance(value, tuple(classes)):
                return name, of, value
    raise TypeError(f"{value!r} is not a case of {type!r}")


def cases(type):
    if isinstance(type, OptionType):
        return [("none", None), ("some", type.payload)]
    if isinstance(type, ResultType):
        return [("ok", type.ok), ("err", type.err)]
    return type.cases


def snake(name):
    return name.replace("-", "_")
