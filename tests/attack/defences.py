"""The one list of attacks that nothing stops yet, with the reason.

Take an attack out of it in the commit that mends what it uses: from then on CI fails when it succeeds. An attack that
is in the list is played and shown as NOT DEFENDED, never as passed; if it does not succeed any more, the output says so.
"""

NOT_DEFENDED = {
    "8.1": "item 8: the cookie is the only secret of a login in a browser",
}
