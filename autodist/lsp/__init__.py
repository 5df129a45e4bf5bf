"""Findings in the editor: a language server on standard input and output, and the process that it has scripts checked
by."""
