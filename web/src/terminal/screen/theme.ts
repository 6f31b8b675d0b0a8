import type { ITheme } from "@xterm/xterm";

/** The sixteen colours of a terminal, once for light and once for dark ground. */
const LIGHT: ITheme = {
  black: "#24292f",
  red: "#b3261e",
  green: "#116329",
  yellow: "#7a5200",
  blue: "#0a58b8",
  magenta: "#8a2fa0",
  cyan: "#0f6674",
  white: "#57606a",
  brightBlack: "#6e7781",
  brightRed: "#c4320a",
  brightGreen: "#1a7f37",
  brightYellow: "#8a6100",
  brightBlue: "#1f6feb",
  brightMagenta: "#a13fb8",
  brightCyan: "#157f8f",
  brightWhite: "#24292f",
};

const DARK: ITheme = {
  black: "#3b424c",
  red: "#ff7b72",
  green: "#56d364",
  yellow: "#e3b341",
  blue: "#79b8ff",
  magenta: "#d2a8ff",
  cyan: "#56d4dd",
  white: "#c9d1d9",
  brightBlack: "#8b949e",
  brightRed: "#ffa198",
  brightGreen: "#7ee787",
  brightYellow: "#f2cc60",
  brightBlue: "#a5d0ff",
  brightMagenta: "#e2c5ff",
  brightCyan: "#84e5ec",
  brightWhite: "#f0f6fc",
};

/** Colours the search marks hits with: xterm takes `#rrggbb` only. */
export interface SearchColours {
  match: string;
  active: string;
}

/** What a colour of the app's style sheet is, as `#rrggbb`, whatever notation it is written in. */
function colourOf(element: Element, name: string, otherwise: string): string {
  const written = getComputedStyle(element).getPropertyValue(name).trim();
  const context = document.createElement("canvas").getContext("2d");
  if (!context || written === "" || !CSS.supports("color", written)) return otherwise;
  context.fillStyle = written;
  context.fillRect(0, 0, 1, 1);
  const [red = 0, green = 0, blue = 0] = context.getImageData(0, 0, 1, 1).data;
  return `#${[red, green, blue].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

function brightness(colour: string): number {
  const part = (at: number) => Number.parseInt(colour.slice(at, at + 2), 16);
  return 0.299 * part(1) + 0.587 * part(3) + 0.114 * part(5);
}

/** The terminal's colours, from the app's own. */
export function themeOf(element: Element): { theme: ITheme; search: SearchColours } {
  const background = colourOf(element, "--bg", "#ffffff");
  const foreground = colourOf(element, "--text", "#24292f");
  const accent = colourOf(element, "--accent", "#0a58b8");
  const isDark = brightness(background) < 128;
  const theme: ITheme = {
    ...(isDark ? DARK : LIGHT),
    background,
    foreground,
    cursor: accent,
    cursorAccent: background,
    selectionBackground: isDark ? "#3d5a80" : "#b6d6ff",
    selectionInactiveBackground: isDark ? "#4b5563" : "#b9c6d6",
  };
  return { theme, search: isDark ? { match: "#5c4d1e", active: "#9a6b00" } : { match: "#fff1b8", active: "#ffc94d" } };
}

/** Calls when the app's theme changes, by a person's choice or by the system's. Returns what ends that. */
export function onThemeChange(listener: () => void): () => void {
  const observer = new MutationObserver(listener);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", listener);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", listener);
  };
}
