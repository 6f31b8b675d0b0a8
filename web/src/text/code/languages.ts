/** Which language a file or a fence is in. */
export const LANGUAGES = [
  "c", "cpp", "csharp", "css", "dart", "diff", "docker", "elixir", "go", "graphql", "haskell", "hcl", "html", "ini",
  "java", "javascript", "json", "jsonc", "jsx", "kotlin", "lua", "make", "markdown", "nix", "perl", "php",
  "powershell", "proto", "python", "r", "ruby", "rust", "scala", "scss", "shellscript", "sql", "svelte", "swift",
  "toml", "tsx", "typescript", "vue", "xml", "yaml", "zig",
] as const;

export type Language = (typeof LANGUAGES)[number];

const known: ReadonlySet<string> = new Set(LANGUAGES);

/** Other names and the ends of files. */
const ALIASES: Record<string, string> = {
  "c++": "cpp", "c#": "csharp", bash: "shellscript", bzl: "python", cc: "cpp", cjs: "javascript", conf: "ini",
  console: "shellscript", cs: "csharp", cts: "typescript", cxx: "cpp", dockerfile: "docker", env: "ini", ex: "elixir",
  exs: "elixir", fish: "shellscript", golang: "go", gql: "graphql", gradle: "java", h: "c", hh: "cpp", hpp: "cpp",
  hs: "haskell", htm: "html", json5: "jsonc", jsonl: "json", js: "javascript", kt: "kotlin", kts: "kotlin", less: "scss",
  makefile: "make", md: "markdown", mdx: "markdown", mjs: "javascript", mk: "make", mts: "typescript", patch: "diff",
  pl: "perl", pm: "perl", ps1: "powershell", protobuf: "proto", py: "python", pyi: "python", python3: "python", rb: "ruby",
  rs: "rust", sass: "scss", sc: "scala", sh: "shellscript", shell: "shellscript", svg: "xml", terraform: "hcl", tf: "hcl",
  ts: "typescript", yml: "yaml", zsh: "shellscript",
};

const FILE_NAMES: Record<string, string> = {
  ".bashrc": "shellscript", ".editorconfig": "ini", ".env": "ini", ".gitconfig": "ini", ".profile": "shellscript",
  ".zshrc": "shellscript", "cargo.lock": "toml", "tsconfig.json": "jsonc", containerfile: "docker", dockerfile: "docker",
  gemfile: "ruby", gnumakefile: "make", justfile: "make", makefile: "make", rakefile: "ruby",
};

/** The language of a word after a fence, if we know it. */
export function languageOf(word: string): string | undefined {
  const name = word.toLowerCase();
  const language = ALIASES[name] ?? name;
  return known.has(language) ? language : undefined;
}

/** The language of a file, if we know it. */
export function languageOfPath(path: string): string | undefined {
  const name = path.split("/").at(-1)?.toLowerCase() ?? "";
  const known = FILE_NAMES[name];
  if (known) return known;
  if (name.startsWith("dockerfile.")) return "docker";
  const ending = name.includes(".") ? name.slice(name.lastIndexOf(".") + 1) : "";
  return ending === "" ? undefined : languageOf(ending);
}
