"""Settings of Sphinx for the site. tools/site lays the pages out and names Doxygen's output."""

project = "cgtree"
html_title = "cgtree"
root_doc = "index"
extensions = ["myst_parser", "breathe"]

# Anchors of headings, as GitHub makes them.
myst_heading_anchors = 4
breathe_default_project = "cgtree"
breathe_domain_by_file_pattern = {"*/c_api.h": "c"}
# Each header opens the namespace, C has a tag and a type of one name, and pages of sources and of
# headers are in no list.
suppress_warnings = ["duplicate_declaration.cpp", "duplicate_declaration.c", "toc.not_included"]
# A function's parameters are on separate lines if a line would be longer.
maximum_signature_line_length = 88

html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
