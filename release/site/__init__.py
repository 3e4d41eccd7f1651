"""`make docs`: the manuals as a site that needs no server; the Markdown files of the repository are its only source.

Sphinx makes it, with MyST for Markdown and Furo for its looks. Manuals are written for a code host as well, so nothing
in them is meant for these alone: what the site needs besides is made here.

| module | contents |
| --- | --- |
| `navigation` | the groups of docs/README.md |
| `staging` | the tree of pages and files that Sphinx reads |
| `markdown` | links and plain text in Markdown |
| `command_pages` | a page for each command |
| `api_page` | the names of `import partc`, from their docstrings |
| `building` | the run of Sphinx |
| `checks` | what a built site must not have: broken links, files of other hosts |
| `conf` | settings of Sphinx |
"""
