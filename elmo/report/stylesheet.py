"""The CSS of the HTML page, with the colours of the charts: light and dark mode, phone to wide screen, print."""

from __future__ import annotations

from elmo.charts.svg import COLORS

# name -> (colour in light mode, in dark mode)
BACKGROUNDS = {"panel": ("#f3f5f9", "#20242b"), "target": ("#fff3bf", "#4a3f10")}
_EDGE = {"edge": ("#7d8798", "#93a0b8")}  # the shadow at the side where a table goes on
VERDICTS = {  # text colours
    "good": ("#0b6630", "#83dba0"),
    "even": ("#6d4a00", "#f0c674"),
    "bad": ("#a3142c", "#ff9fab"),
    "none": ("#565a63", "#aeb2bb"),
}
_RULES = """
* { box-sizing: border-box }
html { color-scheme: light dark; scroll-padding-top: 1rem; -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--ground); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif }
header, main, footer, nav { max-width: 66rem; margin: 0 auto; padding: 0 1rem }
header { padding-top: 2rem }
h1 { font-size: clamp(1.5rem, 5vw, 2.2rem); line-height: 1.2; margin: 0 0 .5rem }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 0 0 .75rem }
section { padding: 1.5rem 0; border-top: 1px solid var(--rule) }
a { color: var(--second) }
a:focus-visible, summary:focus-visible, [tabindex]:focus-visible { outline: 3px solid var(--second) }
.skip { position: absolute; left: -99rem }
.skip:focus { left: 1rem; top: 1rem; background: var(--ground); padding: .5rem }
main > nav { padding: 0 }
#opening figure { display: inline-block; vertical-align: top; width: min(100%, 30rem); margin: .5rem 1rem .5rem 0 }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; list-style: none; margin: 1rem 0; padding: 0 }
nav a { display: inline-block; padding: .3rem 0 }
p, li, figcaption { max-width: 46rem; overflow-wrap: anywhere }
.tally { display: flex; flex-wrap: wrap; gap: .5rem; list-style: none; margin: 1rem 0; padding: 0 }
.tally li { border: 1px solid currentColor; border-radius: 1rem; padding: .2rem .8rem; font-weight: 600 }
.verdict.good { color: var(--good) } .verdict.even { color: var(--even) }
.verdict.bad { color: var(--bad) } .verdict.none { color: var(--none) }
td .verdict { font-weight: 600 }
.more { margin: .5rem 0 } .more summary { color: var(--second); max-width: 46rem } .more p { margin: .25rem 0 .75rem }
.remark summary { color: inherit } .remark:not([open]) summary::after { content: " (more)"; color: var(--second) }
td .more { margin: 0 } td .more p { margin-bottom: 0 }
figure .wide { display: block }
.wide { display: inline-block; vertical-align: top; max-width: 100%; overflow-x: auto; margin: .5rem .75rem .5rem 0 }
.wide { border: 1px solid var(--rule); border-radius: .4rem }
.wide { background: linear-gradient(to right, var(--ground) 40%, transparent) 0 0 / 3rem 100% no-repeat local,
linear-gradient(to left, var(--ground) 40%, transparent) 100% 0 / 3rem 100% no-repeat local,
linear-gradient(to right, var(--edge), transparent) 0 0 / .9rem 100% no-repeat scroll,
linear-gradient(to left, var(--edge), transparent) 100% 0 / .9rem 100% no-repeat scroll }
.overflows::before { content: "Scroll sideways to see the rest →"; position: sticky; left: 0; display: block;
width: fit-content; padding: .4rem .75rem 0; color: var(--second); font-size: .9rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem }
caption { text-align: left; padding: .6rem .75rem; font-weight: 600; max-width: min(46rem, calc(100vw - 3rem)) }
th, td { padding: .4rem .7rem; text-align: right; vertical-align: top; border-top: 1px solid var(--rule) }
td { white-space: nowrap }
thead th { text-align: right; font-weight: 600; color: var(--faint) }
th:first-child { text-align: left }
tr > th:first-child { position: sticky; left: 0; background: var(--ground); min-width: 7rem; max-width: 46vw }
.overflows tr > th:first-child { box-shadow: 1px 0 var(--rule), .4rem 0 .4rem -.4rem var(--edge) }
tbody th { font-weight: 500 }
.words td { text-align: left; white-space: normal }
.words thead th { text-align: left }
td strong { font-weight: 700 }
.note, figcaption, footer { color: var(--faint); font-size: .9rem }
.wide > .note { width: 0; min-width: min(100%, calc(100vw - 3rem)); margin: 0; padding: .5rem .7rem }
.wide > .note { position: sticky; left: 0 }
figure { margin: 1rem 0 }
figure svg { display: block; width: 100%; max-width: 32rem; height: auto }
figure .wide svg { min-width: 46rem; max-width: 60rem }
.missing { background: var(--panel); border-radius: .4rem; padding: .75rem 1rem; margin: 1rem 0 }
.missing p { margin: 0 0 .5rem }
pre { margin: 0; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem }
code { font-family: ui-monospace, monospace }
.records { list-style: none; padding: 0 }
.records li { max-width: none; border-top: 1px solid var(--rule); padding: .35rem .25rem }
.records li:target { background: var(--target) }
summary { cursor: pointer; padding: .25rem 0; overflow-wrap: anywhere }
.records details > div { background: var(--panel); border-radius: .4rem; padding: .75rem; margin: .5rem 0 }
@media (max-width: 30rem) { th, td { padding: .4rem .5rem } table { font-size: .86rem }
tr > th:first-child { min-width: 5.5rem; max-width: 38vw } .wide { display: block; margin-right: 0 } }
@media (max-width: 44rem) {
.words, .words tbody, .words tr, .words tr > th:first-child, .words td { display: block; max-width: none }
.paired, .paired tbody, .paired tr > th:first-child, .paired td { display: block; max-width: none }
.words thead, .paired thead { position: absolute; left: -99rem }
.words caption, .paired caption { display: block }
.words tr, .paired tr { border-top: 1px solid var(--rule); padding: .5rem 0 }
.words tr > th:first-child, .words td { border: 0; padding: .1rem .75rem; position: static }
.words tbody th, .paired tbody th { font-weight: 600 }
.words td::before { content: attr(data-head) ": "; color: var(--faint) }
.words td:only-of-type::before { content: none }
.paired tr { display: grid; grid: auto / auto-flow 1fr; grid-template-rows: repeat(calc(var(--half) + 1), auto) }
.paired tr > th:first-child { grid-area: 1 / 1 / 2 / 3; position: static; border: 0; padding: .1rem .75rem }
.paired td { border: 0; padding: .2rem .75rem; text-align: left; font-size: .95rem }
.paired td::before { content: attr(data-head); display: block; color: var(--faint); font-size: .8rem }
}
@media print { .skip, nav { display: none } .wide { overflow: visible } section { break-inside: auto } }
"""


def style_sheet() -> str:
    """The text of the style sheet."""
    colors = {**COLORS, **BACKGROUNDS, **_EDGE, **VERDICTS}
    light, dark = (" ".join(f"--{name}: {pair[side]};" for name, pair in colors.items()) for side in (0, 1))
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}{_RULES}"
