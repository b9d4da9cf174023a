"""Lists the public interface of crates, one line per item, from the JSON that rustdoc writes.

The interface of a crate is what its users can name: the items of its public modules, and those that
they re-export from crates of the workspace without a stable interface. An item is listed under its
shortest path; its other paths are lines that begin with `use`, and so are re-exports from other
crates. Items with `#[doc(hidden)]` are not listed.

A line contains everything that its users depend on: the types of arguments, the bounds, whether a
struct has private fields. Types have the path under which users name them, so a type that moves
between private modules changes no line. Items of crates outside the workspace have the name of their
crate and their own, such as `std::Duration`, where `core` and `alloc` count as `std`. Of the traits
that the compiler implements, such as `Send`, a type without parameters has only those that it lacks:
`impl !std::Send for volt::LocalRuntime`.
"""

# The versions of the format that this program has been used with.
FORMATS = range(50, 60)
AUTO_TRAITS = {"Send", "Sync", "Unpin", "UnwindSafe", "RefUnwindSafe"}
# Traits of the compiler that no user can name on stable Rust.
UNSTABLE_TRAITS = {"std::StructuralPartialEq"}
# The kinds of items, as in the lines, by their names in the JSON.
KINDS = {
    "struct": "struct", "enum": "enum", "union": "union", "trait": "trait", "function": "fn", "constant": "const",
    "static": "static", "type_alias": "type", "macro": "macro", "proc_macro": "macro", "trait_alias": "trait",
}


class Crate:
    """The JSON of one crate."""

    def __init__(self, json):
        if json["format_version"] not in FORMATS:
            raise SystemExit(f"FAILED: rustdoc's format {json['format_version']} is not one of {FORMATS}: see .ci/packages/public_api.py")
        self.index, self.paths, self.root = json["index"], json["paths"], json["root"]
        self.name = self.item(self.root)["name"]
        self.names = {0: self.name} | {int(id): crate["name"] for id, crate in json["external_crates"].items()}
        self.by_path = {(path["kind"], *path["path"]): id for id, path in self.paths.items() if path["crate_id"] == 0}

    def item(self, id):
        return self.index.get(str(id))


class Api:
    """The lines of one crate."""

    def __init__(self, crate, all, others):
        # The crates of the workspace by name, and the lists of those that have one.
        self.crate, self.all, self.others = crate, all, others
        # The shortest path of each item, by its crate and its number there.
        self.public = {}
        # The other paths, and what is re-exported from crates outside the workspace.
        self.uses = set()
        self.lines = set()
        found = []
        self.walk(crate, crate.root, (crate.name,), found, ())
        found.sort(key=lambda it: (len(it[2]), it[2]))
        for owner, id, path in found:
            key = (owner.name, str(id))
            if self.public.setdefault(key, path) != path:
                self.uses.add((path, key))
        for (name, id), path in list(self.public.items()):
            self.add(all[name], all[name].item(id), "::".join(path))
        for path, target in self.uses:
            target = target if isinstance(target, str) else "::".join(self.public[target])
            self.lines.add(f"use {'::'.join(path)} = {target}")

    def walk(self, crate, id, path, found, above):
        """Finds the public items below a module, with all their paths."""
        module = crate.item(id)
        for child in module["inner"]["module"]["items"]:
            item = crate.item(child)
            if item is None or item["visibility"] != "public":
                continue
            kind = next(iter(item["inner"]))
            if kind == "use":
                self.walk_use(crate, item["inner"]["use"], path, found, above)
            elif kind == "module":
                self.enter(crate, child, (*path, item["name"]), found, above)
            elif kind in KINDS:
                found.append((crate, child, (*path, item["name"])))

    def enter(self, crate, id, path, found, above):
        key = (crate.name, str(id))
        # A module can contain a re-export of a module around it.
        if key in above:
            return
        self.public.setdefault(key, path)
        self.walk(crate, id, path, found, (*above, key))

    def walk_use(self, crate, use, path, found, above):
        owner, id = self.resolve(crate, use["id"])
        item = owner.item(id) if owner and owner.name not in self.others else None
        name = use["name"]
        if item is None:
            outside = self.outside(crate, use["id"]) or use["source"]
            self.uses.add(((*path, "*" if use["is_glob"] else name), outside))
            return
        kind = next(iter(item["inner"]))
        if kind == "use":
            self.walk_use(owner, item["inner"]["use"] | {"name": name}, path, found, above)
        elif kind == "module" and use["is_glob"]:
            key = (owner.name, str(id))
            if key not in above:
                self.walk(owner, id, path, found, (*above, key))
        elif kind == "enum" and use["is_glob"]:
            for variant in item["inner"]["enum"]["variants"]:
                self.uses.add(((*path, owner.item(variant)["name"]), f"{item['name']}::{owner.item(variant)['name']}"))
        elif kind == "module":
            self.enter(owner, id, (*path, name), found, above)
        elif kind in KINDS:
            found.append((owner, id, (*path, name)))

    def resolve(self, crate, id):
        """Returns the crate that defines an item, and its number there; None outside the workspace."""
        path = crate.paths.get(str(id))
        if crate.item(id) is not None or path is None:
            return crate, id
        owner = self.all.get(crate.names[path["crate_id"]])
        if owner is None:
            return None, id
        return owner, owner.by_path.get((path["kind"], *path["path"]))

    def outside(self, crate, id):
        """Returns the name of an item of a crate that has its own list, or is outside the workspace."""
        owner, own_id = self.resolve(crate, id)
        if owner and owner.name in self.others:
            if public := self.others[owner.name].public.get((owner.name, str(own_id))):
                return "::".join(public)
        path = crate.paths.get(str(id))
        if path is None:
            return None
        name = crate.names[path["crate_id"]]
        name = "std" if name in ("core", "alloc") else name
        return f"{name}::{path['path'][-1]}" if len(path["path"]) > 1 else name

    def name_of(self, crate, path):
        """Returns the name of a type or trait as users write it."""
        owner, id = self.resolve(crate, path["id"])
        public = self.public.get((owner.name, str(id))) if owner else None
        if public:
            return "::".join(public)
        return self.outside(crate, path["id"]) or path["path"]

    # The items.

    def add(self, crate, item, path):
        kind = next(iter(item["inner"]))
        inner = item["inner"][kind]
        getattr(self, f"add_{kind}")(crate, item, inner, path)

    def line(self, text, *marks):
        marks = [mark for mark in marks if mark]
        self.lines.add(text + (f" ({', '.join(marks)})" if marks else ""))

    def add_module(self, crate, item, inner, path):
        self.line(f"mod {path}")

    def add_struct(self, crate, item, inner, path):
        kind = inner["kind"]
        fields, hidden, shape = [], False, "unit"
        if "plain" in kind:
            fields, hidden, shape = kind["plain"]["fields"], kind["plain"]["has_stripped_fields"], ""
        elif "tuple" in kind:
            fields, hidden, shape = kind["tuple"], None in kind["tuple"], "tuple"
        head = f"struct {path}{self.generics(crate, inner['generics'])}"
        self.line(head, shape, "private fields" if hidden else "", non_exhaustive(item))
        self.add_fields(crate, fields, path)
        self.add_impls(crate, inner["impls"], path)

    def add_union(self, crate, item, inner, path):
        self.line(f"union {path}{self.generics(crate, inner['generics'])}", "private fields" if inner["has_stripped_fields"] else "")
        self.add_fields(crate, inner["fields"], path)
        self.add_impls(crate, inner["impls"], path)

    def add_fields(self, crate, fields, path):
        for id in fields:
            if (field := crate.item(id)) and field["visibility"] == "public":
                self.line(f"field {path}::{field['name']}: {self.type(crate, field['inner']['struct_field'])}")

    def add_enum(self, crate, item, inner, path):
        self.line(f"enum {path}{self.generics(crate, inner['generics'])}", non_exhaustive(item))
        for id in inner["variants"]:
            if variant := crate.item(id):
                self.add_variant(crate, variant, f"{path}::{variant['name']}")
        self.add_impls(crate, inner["impls"], path)

    def add_variant(self, crate, variant, path):
        kind = variant["inner"]["variant"]["kind"]
        if kind == "plain":
            text = ""
        elif "tuple" in kind:
            text = "(" + ", ".join(self.field(crate, id) for id in kind["tuple"]) + ")"
        else:
            fields = [crate.item(id) for id in kind["struct"]["fields"]]
            text = " { " + ", ".join(f"{field['name']}: {self.field(crate, field['id'])}" for field in fields if field) + " }"
        self.line(f"variant {path}{text}", non_exhaustive(variant))

    def field(self, crate, id):
        field = crate.item(id) if id is not None else None
        return self.type(crate, field["inner"]["struct_field"]) if field else "_"

    def add_trait(self, crate, item, inner, path):
        marks = ["unsafe" if inner["is_unsafe"] else "", "" if inner["is_dyn_compatible"] else "not dyn"]
        self.line(f"trait {path}{self.generics(crate, inner['generics'], self.bounds(crate, inner['bounds']))}", *marks)
        for id in inner["items"]:
            if member := crate.item(id):
                self.add_member(crate, member, f"{path}::{member['name']}", is_trait=True)

    def add_member(self, crate, member, path, is_trait=False):
        """Adds an item of a trait or of an impl."""
        kind = next(iter(member["inner"]))
        inner = member["inner"][kind]
        if kind == "function":
            self.add_function(crate, member, inner, path, "" if inner["has_body"] or not is_trait else "required")
        elif kind == "assoc_const":
            self.line(f"const {path}: {self.type(crate, inner['type'])}", "required" if is_trait and inner["value"] is None else "")
        elif kind == "assoc_type":
            bounds = self.bounds(crate, inner["bounds"])
            value = f" = {self.type(crate, inner['type'])}" if inner["type"] else ""
            self.line(f"type {path}{self.generics(crate, inner['generics'], bounds)}{value}", "required" if is_trait and not value else "")

    def add_function(self, crate, item, inner, path, mark=""):
        header = inner["header"]
        qualifiers = "".join(f"{each} " for each in ("const", "async", "unsafe") if header[f"is_{each}"])
        abi = "" if header["abi"] == "Rust" else f'extern "{header["abi"]}" '
        self.line(f"{qualifiers}{abi}fn {path}{self.signature(crate, inner['sig'], inner['generics'])}", mark)

    def add_constant(self, crate, item, inner, path):
        self.line(f"const {path}: {self.type(crate, inner['type'])}")

    def add_static(self, crate, item, inner, path):
        self.line(f"static {'mut ' if inner['is_mutable'] else ''}{path}: {self.type(crate, inner['type'])}")

    def add_type_alias(self, crate, item, inner, path):
        self.line(f"type {path}{self.generics(crate, inner['generics'])} = {self.type(crate, inner['type'])}")

    def add_trait_alias(self, crate, item, inner, path):
        self.line(f"trait {path}{self.generics(crate, inner['generics'])} = {self.bounds(crate, inner['params'])}")

    def add_macro(self, crate, item, inner, path):
        self.line(f"macro {path}!")

    def add_proc_macro(self, crate, item, inner, path):
        self.line(f"macro {path}", inner["kind"])

    def add_impls(self, crate, impls, path):
        for id in impls:
            item = crate.item(id)
            if item is None:
                continue
            inner = item["inner"]["impl"]
            if inner["blanket_impl"] is not None:
                continue
            if inner["trait"] is None:
                target = self.type(crate, inner["for"])
                generics = self.generics(crate, inner["generics"])
                # Methods of some instances only, such as those of `Sender<u8>`.
                where = f" [{generics} for {target}]" if "<" in target and not is_general(target, generics) else ""
                for member in inner["items"]:
                    member = crate.item(member)
                    if member and member["visibility"] == "public":
                        self.add_member(crate, member, f"{path}::{member['name']}{where}")
                continue
            trait, target = self.path(crate, inner["trait"]), self.type(crate, inner["for"])
            params, where = self.params_and_where(crate, inner["generics"])
            sign = "!" if inner["is_negative"] else ""
            if inner["is_synthetic"] and (trait.split("::")[-1] not in AUTO_TRAITS or not sign and not params):
                continue
            if trait in UNSTABLE_TRAITS:
                continue
            head = f"impl{params} {sign}{trait} for {target}"
            types = [crate.item(member) for member in inner["items"]]
            types = [it for it in types if it and "assoc_type" in it["inner"]]
            texts = [f"{it['name']} = {self.type(crate, it['inner']['assoc_type']['type'])}" for it in types]
            self.line(head + where + (f" {{ {', '.join(texts)} }}" if texts else ""))

    # The types.

    def signature(self, crate, sig, generics):
        inputs = []
        for name, type in sig["inputs"]:
            text = self.type(crate, type)
            inputs.append(f"self: {text}" if name == "self" else text)
        if sig["is_c_variadic"]:
            inputs.append("...")
        output = f" -> {self.type(crate, sig['output'])}" if sig["output"] else ""
        params, where = self.params_and_where(crate, generics)
        return f"{params}({', '.join(inputs)}){output}{where}"

    def generics(self, crate, generics, bounds=""):
        params, where = self.params_and_where(crate, generics)
        return params + (f": {bounds}" if bounds else "") + where

    def params_and_where(self, crate, generics):
        params = [self.param(crate, it) for it in generics["params"]]
        params = [param for param in params if param]
        wheres = [self.predicate(crate, it) for it in generics["where_predicates"]]
        return f"<{', '.join(params)}>" if params else "", f" where {', '.join(wheres)}" if wheres else ""

    def param(self, crate, param):
        kind = next(iter(param["kind"]))
        inner = param["kind"][kind]
        if kind == "lifetime":
            outlives = " + ".join(inner["outlives"])
            return param["name"] + (f": {outlives}" if outlives else "")
        if kind == "const":
            return f"const {param['name']}: {self.type(crate, inner['type'])}"
        # An argument `impl Trait` is written as such.
        if inner["is_synthetic"]:
            return ""
        bounds = self.bounds(crate, inner["bounds"])
        default = f" = {self.type(crate, inner['default'])}" if inner["default"] else ""
        return param["name"] + (f": {bounds}" if bounds else "") + default

    def predicate(self, crate, predicate):
        kind = next(iter(predicate))
        inner = predicate[kind]
        if kind == "bound_predicate":
            return f"{self.type(crate, inner['type'])}: {self.bounds(crate, inner['bounds'])}"
        if kind == "lifetime_predicate":
            return f"{inner['lifetime']}: {' + '.join(inner['outlives'])}"
        return f"{self.type(crate, inner['lhs'])} == {self.term(crate, inner['rhs'])}"

    def bounds(self, crate, bounds):
        return " + ".join(self.bound(crate, bound) for bound in bounds)

    def bound(self, crate, bound):
        kind = next(iter(bound))
        inner = bound[kind]
        if kind == "outlives":
            return inner
        if kind == "use":
            return "use<" + ", ".join(next(iter(arg.values())) for arg in inner) + ">"
        modifier = {"none": "", "maybe": "?", "maybe_const": "~const "}[inner["modifier"]]
        return modifier + self.path(crate, inner["trait"])

    def path(self, crate, path):
        return self.name_of(crate, path) + self.args(crate, path["args"])

    def args(self, crate, args):
        if not args:
            return ""
        if "angle_bracketed" in args:
            inner = args["angle_bracketed"]
            texts = [self.arg(crate, arg) for arg in inner["args"]] + [self.constraint(crate, it) for it in inner["constraints"]]
            return f"<{', '.join(texts)}>" if texts else ""
        if "parenthesized" in args:
            inner = args["parenthesized"]
            output = f" -> {self.type(crate, inner['output'])}" if inner["output"] else ""
            return f"({', '.join(self.type(crate, it) for it in inner['inputs'])}){output}"
        return "(..)"

    def arg(self, crate, arg):
        if arg == "infer":
            return "_"
        kind = next(iter(arg))
        inner = arg[kind]
        if kind == "type":
            return self.type(crate, inner)
        return inner if kind == "lifetime" else inner["expr"]

    def constraint(self, crate, constraint):
        name = constraint["name"] + self.args(crate, constraint["args"])
        binding = constraint["binding"]
        if "equality" in binding:
            return f"{name} = {self.term(crate, binding['equality'])}"
        return f"{name}: {self.bounds(crate, binding['constraint'])}"

    def term(self, crate, term):
        return self.type(crate, term["type"]) if "type" in term else term["constant"]["expr"]

    def type(self, crate, type):
        if type in ("infer", None):
            return "_"
        kind = next(iter(type))
        inner = type[kind]
        if kind == "resolved_path":
            return self.path(crate, inner)
        if kind in ("generic", "primitive"):
            return inner
        if kind == "tuple":
            return f"({', '.join(self.type(crate, it) for it in inner)})"
        if kind == "slice":
            return f"[{self.type(crate, inner)}]"
        if kind == "array":
            return f"[{self.type(crate, inner['type'])}; {inner['len']}]"
        if kind == "impl_trait":
            return f"impl {self.bounds(crate, inner)}"
        if kind == "dyn_trait":
            texts = [self.path(crate, it["trait"]) for it in inner["traits"]]
            return "dyn " + " + ".join(texts + ([inner["lifetime"]] if inner["lifetime"] else []))
        if kind == "borrowed_ref":
            lifetime = f"{inner['lifetime']} " if inner["lifetime"] else ""
            return f"&{lifetime}{'mut ' if inner['is_mutable'] else ''}{self.type(crate, inner['type'])}"
        if kind == "raw_pointer":
            return f"*{'mut' if inner['is_mutable'] else 'const'} {self.type(crate, inner['type'])}"
        if kind == "function_pointer":
            unsafe = "unsafe " if inner["header"]["is_unsafe"] else ""
            return f"{unsafe}fn{self.signature(crate, inner['sig'], {'params': [], 'where_predicates': []})}"
        if kind == "qualified_path":
            trait = inner["trait"]
            name = inner["name"] + self.args(crate, inner["args"])
            own = self.type(crate, inner["self_type"])
            return f"<{own} as {self.path(crate, trait)}>::{name}" if trait and trait["path"] else f"{own}::{name}"
        if kind == "pat":
            return self.type(crate, inner["type"])
        raise SystemExit(f"FAILED: rustdoc has a new kind of type, {kind}: see .ci/packages/public_api.py")


def non_exhaustive(item):
    return "non_exhaustive" if "non_exhaustive" in item["attrs"] or {"other": "#[non_exhaustive]"} in item["attrs"] else ""


def is_general(target, generics):
    """Returns whether the arguments of a type are the parameters of its impl, as in `impl<T> A<T>`."""
    args = target[target.index("<") + 1 : -1].split(", ")
    return all(arg == "'_" or arg in generics.strip("<>").split(", ") for arg in args)


def lists(jsons, names):
    """Returns the sorted lines of each crate in `names`, where a crate comes after those that it uses.

    `jsons` has the JSON of these crates and of those without a stable interface, by name.
    """
    crates = {name: Crate(json) for name, json in jsons.items()}
    apis = {}
    for name in names:
        apis[name] = Api(crates[name], crates, dict(apis))
    return {name: sorted(api.lines) for name, api in apis.items()}
