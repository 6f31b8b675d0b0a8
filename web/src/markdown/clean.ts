/** The second wall: what `render.ts` has made goes through DOMPurify and enters the page as nodes, never as a string. */
import DOMPurify from "dompurify";

const CONFIG = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "button", "code", "del", "div", "em", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["href", "target", "rel", "title", "class", "tabindex", "role", "aria-label", "start", "type"],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:|\/s\/)/i,
  // The pattern above is for addresses; these carry none.
  ADD_URI_SAFE_ATTR: ["target", "rel", "tabindex", "aria-label", "start", "type"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
} as const;

/** The nodes of a piece of HTML, without anything that could do harm. */
export function cleanFragment(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, {
    ...CONFIG,
    ALLOWED_TAGS: [...CONFIG.ALLOWED_TAGS],
    ALLOWED_ATTR: [...CONFIG.ALLOWED_ATTR],
    ADD_URI_SAFE_ATTR: [...CONFIG.ADD_URI_SAFE_ATTR],
  });
}
