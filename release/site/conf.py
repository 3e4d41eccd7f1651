"""Settings of Sphinx. Nothing in them is of this day or this machine, so that a commit always gives the same site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

from partc import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "partc"
version = release = __version__
extensions = ["myst_parser"]
root_doc = "index"

# Titles get the anchors that code hosts give them.
myst_heading_anchors = 6
# Blocks of JSON and YAML with an ellipsis in them are shown without colours.
suppress_warnings = ["misc.highlighting_failure"]

# Quotation marks and hyphens stay those of the text: options of commands are among them.
smartquotes = False

html_theme = "furo"
html_title = f"partc {__version__}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_use_index = False
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
# Summaries of hits would be fetched, which browsers refuse for pages that are files.
html_show_search_summary = False
pygments_style, pygments_dark_style = "default", "github-dark"


def setup(app: Sphinx) -> None:
    """Blocks in languages of our own are plain text."""
    for language in ("device", "trace"):
        app.add_lexer(language, TextLexer)
