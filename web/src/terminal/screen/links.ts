/** Addresses in what a program writes. Nothing is opened without a question. */

const ADDRESS = /https?:\/\/[^\s"'<>`{}|\\^\u0000-\u001f\u007f]+/gi;

/** What ends a sentence is no part of the address in it. */
const SENTENCE_END = /[.,;:!?)\]]+$/;

export interface FoundLink {
  start: number;
  address: string;
}

export function linksIn(text: string): FoundLink[] {
  return [...text.matchAll(ADDRESS)].map((match) => ({
    start: match.index,
    address: match[0].replace(SENTENCE_END, ""),
  }));
}

/** The address as it would be opened, or nothing if it is not one of the web. */
export function openableAddress(text: string): string | undefined {
  try {
    const address = new URL(text);
    return address.protocol === "http:" || address.protocol === "https:" ? address.href : undefined;
  } catch {
    return undefined;
  }
}
