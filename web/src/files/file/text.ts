/** Bytes of files as text, and back, so that what a person did not touch stays as it was. */

export type LineEnd = "\n" | "\r\n";

export interface DecodedText {
  text: string;
  isBinary: boolean;
}

export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** Reads pages of one file in their order. A character may be cut between two of them. */
export class PageDecoder {
  // A mark at the beginning is part of the file, and must be there again when it is saved.
  #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** A carriage return at the end of a page may be half of a line end. */
  #held = "";

  /** The page as text; a file that is no text says so. */
  decode(bytes: Uint8Array, isLast: boolean): DecodedText {
    if (bytes.includes(0)) return { text: "", isBinary: true };
    try {
      let text = this.#held + this.#decoder.decode(bytes, { stream: !isLast });
      this.#held = !isLast && text.endsWith("\r") ? "\r" : "";
      if (this.#held !== "") text = text.slice(0, -1);
      return { text, isBinary: false };
    } catch {
      return { text: "", isBinary: true };
    }
  }
}

/** A text field knows only line feeds; this is what the file had. */
export function lineEndOf(text: string): { lineEnd: LineEnd; isMixed: boolean } {
  const both = text.split("\r\n").length - 1;
  const feeds = text.split("\n").length - 1;
  return { lineEnd: both > feeds / 2 ? "\r\n" : "\n", isMixed: both > 0 && both < feeds };
}

/** As a text field shows it. */
export function toField(text: string): string {
  return text.replaceAll("\r\n", "\n").replaceAll("\r", "\n");
}

/** As the file shall have it. */
export function fromField(text: string, lineEnd: LineEnd): string {
  return lineEnd === "\n" ? text : text.replaceAll("\n", "\r\n");
}
