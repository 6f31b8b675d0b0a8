import type { IconName } from "../icons.ts";

/** One line of a menu. */
export type MenuItem =
  | {
      label: string;
      icon?: IconName;
      /** A word at the right: a key, a value. */
      hint?: string;
      danger?: boolean;
      disabled?: boolean;
      checked?: boolean;
      href?: string;
      onselect?: () => void;
    }
  | "separator";

/** Where a menu goes: under its button, or above when there is no room; never beyond the window. */
export function placeMenu(menu: HTMLElement, button: DOMRect): void {
  const size = menu.getBoundingClientRect();
  const left = Math.min(Math.max(8, button.right - size.width), innerWidth - size.width - 8);
  const under = button.bottom + 4;
  const fits = under + size.height <= innerHeight - 8;
  menu.style.left = `${left}px`;
  menu.style.top = `${fits ? under : Math.max(8, button.top - size.height - 4)}px`;
}
