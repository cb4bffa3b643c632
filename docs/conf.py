"""The documentation site: Markdown that also reads where the code is hosted, built by Sphinx without a network.

Why Sphinx: it fails on any warning (`-W`), takes the docstrings from the code itself, and is here to stay; Material for
MkDocs, the other candidate, is announced to end in May 2027.
"""

import re
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

import steincv

project = "steincv"
version = release = steincv.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "none"  # shapes and types stand in the text
exclude_patterns = ["paper/*/claims.md"]  # they stand in paper.md
html_title = "steincv"
html_theme = "furo"
html_math_renderer = "mathml"
html_copy_source = html_show_sourcelink = html_show_copyright = html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072b2", "color-brand-content": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
}

DOCS = Path(__file__).parent
PAGES = ("why", "howto/*", "diagnostics", "limits", "trust", "paper", "evidence", "networks", "scale", "api", "design")
PAGES += ("league", "peers", "releasing")
# What differs between Markdown and Sphinx's own markup in a docstring: code, formulas, bars.
INLINE = re.compile(r"`(?P<code>[^`]+)`|\$(?P<tex>[^$]+)\$|(?P<bar>\|)")


def add_menu(app, name, source):
    """The menu of the pages that are there, kept out of the first page so that it reads well elsewhere too."""
    if name == "index":
        there = [page for page in PAGES if any(DOCS.glob(f"{page}.md"))]
        menu = ["```{toctree}", ":hidden:", ":glob:", "", "Start in five minutes <self>", *there, "```"]
        source[0] += "\n" + "\n".join(menu)


def as_rst(app, what, name, thing, options, lines):
    """Docstrings are Markdown."""
    paragraphs = map(_paragraph, "\n".join(lines).split("\n\n"))
    lines[:] = "\n\n".join(paragraphs).split("\n")


def _paragraph(text):
    bare = text.strip()
    if bare.startswith(">>>"):
        return text
    if bare.startswith("$$") and bare.endswith("$$"):
        return ".. math::\n\n   " + " ".join(bare.strip("$").split())
    return INLINE.sub(_inline, text)


def _inline(found):
    if found["bar"]:
        return r"\|"
    return f"``{found['code']}``" if found["code"] else f":math:`{found['tex']}`"


def mathml(display):
    """Formulas as MathML, which browsers draw themselves: no script, no font, no request."""

    def visit(translator, node):
        translator.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit, None


def setup(app):
    app.connect("source-read", add_menu)
    app.connect("autodoc-process-docstring", as_rst)
    app.add_html_math_renderer("mathml", mathml("inline"), mathml("block"))
