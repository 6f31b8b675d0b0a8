/**
 * Lets xterm draw under a content security policy without inline styles. It makes `<style>` elements and sets `style`
 * attributes as text, which the policy forbids; the same rules through the CSS object model are allowed.
 */

/** Stands for a `<style>` element: its text becomes a sheet of the document. Even an empty one would break the policy. */
function sheetElement(create: (tag: string) => HTMLElement): HTMLElement {
  const element = create("div");
  element.hidden = true;
  const sheet = new CSSStyleSheet();
  let text = "";
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, "textContent", {
    get: () => text,
    set: (rules: string) => {
      text = rules;
      sheet.replaceSync(rules);
    },
  });
  const remove = element.remove.bind(element);
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
    remove();
  };
  return element;
}

/** The document as xterm shall see it. */
export function documentForTerminal(): Document {
  return new Proxy(document, {
    get(target, name) {
      if (name === "createElement") {
        const create = (name: string): HTMLElement => target.createElement(name);
        return (tag: string) => (tag === "style" ? sheetElement(create) : create(tag));
      }
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

/** While it is put into the page, xterm asks the real document too, whatever it was told. */
export function openUnderPolicy(open: () => void): void {
  const create = document.createElement.bind(document);
  const shadow = (tag: string): HTMLElement => (tag === "style" ? sheetElement(create) : create(tag));
  Object.defineProperty(document, "createElement", { configurable: true, value: shadow });
  try {
    open();
  } finally {
    Reflect.deleteProperty(document, "createElement");
  }
}

let isPatched = false;

/** Rows of text are spans that xterm makes with the real document: their style attribute goes through the object model. */
export function allowStyledSpans(): void {
  if (isPatched) return;
  isPatched = true;
  Object.defineProperty(HTMLSpanElement.prototype, "setAttribute", {
    configurable: true,
    value(this: HTMLSpanElement, name: string, value: string): void {
      if (name === "style") this.style.cssText = value;
      else Element.prototype.setAttribute.call(this, name, value);
    },
  });
}
