"""The part of Plotly: what is wanted and all that it asks for, and nothing else; the installed one can be cut."""

from __future__ import annotations

import pytest

from service.dashboard.assets import PLOTLY_KINDS, plotly_directory
from service.dashboard.plotly_part import cut

SOURCE = (
    "/** plotly.js */ (() => {var Plotly=(()=>{var W=(e,t)=>()=>(t||e((t={exports:{}}).exports,t),t.exports);"
    'var pen=W((a,b)=>{b.exports="pen"});'
    'var globe=W(a=>{a.name="globe"});function roundness(){}var sphere=Ea(()=>{roundness()});'
    "var core=W((a,b)=>{b.exports=[pen()]});"
    'var grid=W((a,b)=>{b.exports={draws:pen(),name:"heatmap"}});var heatmap=W((a,b)=>{b.exports=grid()});'
    'var earth=W((a,b)=>{sphere();b.exports={name:"geo"}});var geo=W((a,b)=>{b.exports=earth()});'
    "var all=W((a,b)=>{var P=core();P.register([heatmap(),geo()]);b.exports=P});return all();})();\n"
    "/*! a license */\nreturn Plotly;})"
)


@pytest.mark.parametrize(
    ("kinds", "kept", "dropped"),
    [
        (("heatmap",), ("pen", "core", "grid", "heatmap"), ("globe", "sphere", "earth", "geo", "all")),
        (("geo",), ("pen", "core", "globe", "sphere", "earth", "geo"), ("grid", "heatmap", "all")),
    ],
)
def test_what_is_wanted_stays_with_all_that_it_asks_for(
    kinds: tuple[str, ...], kept: tuple[str, ...], dropped: tuple[str, ...]
) -> None:
    script = cut(SOURCE, kinds)
    assert [name for name in (*kept, *dropped) if f"{name}=" in script] == list(kept)
    assert f"globalThis.Plotly=core();Plotly.register([{kinds[0]}()]);" in script
    assert script.startswith("/** plotly.js */\n/*! a license */\n")


def test_a_source_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="put together"):
        cut("export const Plotly = {};", PLOTLY_KINDS)
    with pytest.raises(ValueError, match="lacks some of pie"):
        cut(SOURCE, ("pie",))


def test_the_installed_plotly_can_be_cut() -> None:
    source = (plotly_directory() / "plotly.min.js").read_text(encoding="utf-8")
    assert len(cut(source, PLOTLY_KINDS)) < 0.3 * len(source)
