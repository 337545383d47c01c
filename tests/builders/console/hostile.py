"""Content that means harm to whoever shows it."""

SCRIPT = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
ANSI = "\x1b[31mred\x1b]0;title\x07"
RTL = "abc\u202egnp.exe\u2066x\u2069"
NULL = "a\x00b"
SURROGATE = "half \ud83d of a character"
LONG = "x" * 5_000_000
TEMPLATE = "{{ 7 * 7 }}{% raw %}"
URL = "javascript:document.title='taken'"
ALL = (
    SCRIPT,
    ANSI,
    RTL,
    NULL,
    TEMPLATE,
    URL,
    '"><svg onload=alert(1)>',
    "</td></table></main><h1>taken",
)
