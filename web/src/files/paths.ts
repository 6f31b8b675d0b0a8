/** Paths within a session's directory: relative, with slashes; the directory itself is the empty text. */

export function parentOf(path: string): string {
  const at = path.lastIndexOf("/");
  return at < 0 ? "" : path.slice(0, at);
}

export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

export function join(directory: string, name: string): string {
  return directory === "" ? name : `${directory}/${name}`;
}

/** All directories above a path, outermost first. */
export function ancestorsOf(path: string): string[] {
  const names = path.split("/");
  return names.slice(1).map((_, index) => names.slice(0, index + 1).join("/"));
}

/** Whether a path is the other one or lies below it. */
export function isWithin(path: string, directory: string): boolean {
  return directory === "" || path === directory || path.startsWith(`${directory}/`);
}

/** What a person typed as a path, without what means nothing; nothing for what leads out. */
export function tidy(typed: string): string | undefined {
  const names = typed
    .trim()
    .split("/")
    .filter((name) => name !== "" && name !== ".");
  return names.length === 0 || names.includes("..") ? undefined : names.join("/");
}

/** The address of a file's page. */
export function fileAddress(sessionId: string, path: string, line?: number): string {
  const encoded = path.split("/").map(encodeURIComponent).join("/");
  const query = line === undefined ? "" : `?line=${line}`;
  return `/s/${encodeURIComponent(sessionId)}/files${encoded === "" ? "" : `/${encoded}`}${query}`;
}

/** Where the bytes of a file are. */
export function bytesAddress(sessionId: string, path: string, parameters: Record<string, string> = {}): string {
  const query = new URLSearchParams({ path, ...parameters });
  return `/api/sessions/${encodeURIComponent(sessionId)}/file?${query}`;
}

const IMAGE_TYPES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  avif: "image/avif",
  bmp: "image/bmp",
  ico: "image/x-icon",
  svg: "image/svg+xml",
};

export function extensionOf(path: string): string {
  const name = nameOf(path);
  const at = name.lastIndexOf(".");
  return at <= 0 ? "" : name.slice(at + 1).toLowerCase();
}

/** The media type of a picture, by its name. */
export function imageType(path: string): string | undefined {
  return IMAGE_TYPES[extensionOf(path)];
}
