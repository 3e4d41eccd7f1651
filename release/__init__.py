"""`make release`: what is given to others, made of one commit; the same commit gives the same bytes.

| module | contents |
| --- | --- |
| `tree` | the files of the commit, in a folder of their own, and its time |
| `commands` | what the help of each command says, in its parts |
| `man_pages` | a manual page for each command |
| `shared` | the files that a wheel puts beside its programs: manual pages and completions |
| `linked` | the libraries inside native runners, with versions and licences |
| `bill` | the bill of materials, as CycloneDX |
| `archives` | the two wheels and the source archive |
| `sums` | SHA256SUMS, and the comparison of two releases |
| `errors` | the one exception of this room |
"""
