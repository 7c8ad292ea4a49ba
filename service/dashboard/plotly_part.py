"""The part of Plotly that the pages draw with, cut from the plotly.min.js of plotly's wheel. A pure function.

A browser is busy for more than a second with the whole of it, 4.8 MB for maps, 3D and forty kinds of traces. It was put
together by esbuild from modules that ask for each other by name, the last one for the core, which draws lines and
points, and for all other kinds:

    var vi=W((m,e)=>{...});                                     a module, evaluated by the first `vi()`
    var it=W((m,e)=>{...vi()...});
    ...
    var all=W((m,e)=>{var P=core();P.register([bar(),heatmap(),...]);e.exports=P});return all();})();

Kept are the core, the kinds that are wanted, and whatever they ask for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

_BEGINNING = re.compile(r"var Plotly=\(\(\)=>\{")
_INNER_MODULE = re.compile(r"(?<![\w$])([\w$]+)=[\w$]+\(\(\)=>\{")
"""A module of ECMAScript's kind: with its declarations it stands behind another module, and what needs it calls its
name."""
_CALL = re.compile(r"(?<![\w$])([\w$]+)\(\)")
_LAST_MODULE = re.compile(
    r"var [\w$]+=(?P<helper>[\w$]+)\(\([\w$,]*\)=>\{"
    r"var ([\w$]+)=(?P<core>[\w$]+)\(\);\2\.register\(\[(?P<kinds>[\w$(),]+)\]\);"
)
_LICENSE = re.compile(r"/\*[!*].*?\*/", re.DOTALL)


def cut(source: str, kinds: Sequence[str]) -> str:
    """A script that sets `Plotly`, with lines, points and these kinds of traces.

    Raises: ValueError: the source is not of the form above.
    """
    beginning = _BEGINNING.search(source)
    last = _LAST_MODULE.search(source)
    if beginning is None or last is None:
        raise ValueError("this plotly.min.js is not put together as those known")
    module = re.compile(rf"(?<=[;}}])var ([\w$]+)={re.escape(last['helper'])}\((?:\([\w$,]*\)|[\w$]+)=>\{{")
    modules = list(module.finditer(source, beginning.end(), last.start()))
    ends = [*(following.start() for following in modules[1:]), last.start()]
    texts = {one[1]: source[one.start() : end] for one, end in zip(modules, ends, strict=True)}
    owners = {inner: name for name, text in texts.items() if "(()=>{" in text for inner in _INNER_MODULE.findall(text)}
    owners |= {name: name for name in texts}

    def asked(name: str) -> list[str]:
        return [owners[called] for called in _CALL.findall(texts[name]) if called in owners]

    def brings(name: str, kind: str) -> bool:
        """True if a module only passes on the one of this kind."""
        return any(f'name:"{kind}"' in texts[behind] for behind in asked(name) if behind != name)

    core, offered = last["core"], _CALL.findall(last["kinds"])
    wanted = [name for kind in kinds for name in offered if brings(name, kind)]
    if len(wanted) < len(kinds):
        raise ValueError(f"this plotly.min.js lacks some of {', '.join(kinds)}")
    kept = _reached([core, *wanted], asked)
    licenses = [found[0] for found in _LICENSE.finditer(source) if not beginning.end() < found.start() < last.start()]
    return "\n".join(
        [
            *licenses,
            # Within parentheses a browser compiles it while it comes, beside everything else.
            '(()=>{"use strict";' + source[beginning.end() : modules[0].start()],
            *(text for name, text in texts.items() if name in kept),
            f"globalThis.Plotly={core}();Plotly.register([{','.join(f'{name}()' for name in wanted)}]);",
            "})();",
        ]
    )


def _reached(roots: Iterable[str], asked: Callable[[str], Sequence[str]]) -> set[str]:
    """The roots, what they ask for, what that asks for, and so on."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += asked(name)
    return found
