import type { Component } from "svelte";
import type { IconName } from "../lib/ui/icons.ts";

export interface Section {
  id: string;
  title: string;
  /** What is in it, for the list on a phone. */
  about: string;
  icon: IconName;
  /** Only for those who manage people and machines. */
  isForOwners?: boolean;
  load: () => Promise<{ default: Component }>;
}

/** Each is loaded when it is looked at. */
export const sections: readonly Section[] = [
  { id: "profile", title: "Profile", about: "Who you are here, password, signed-in browsers", icon: "user", load: () => import("./Profile.svelte") },
  { id: "appearance", title: "Appearance", about: "Theme, density, motion", icon: "sun", load: () => import("./Appearance.svelte") },
  { id: "notifications", title: "Notifications", about: "Pushes to this and other devices", icon: "bell", load: () => import("./Notifications.svelte") },
  { id: "phone", title: "Phone", about: "Sign in by QR code, install the app", icon: "phone", load: () => import("./Phone.svelte") },
  { id: "tokens", title: "Access tokens", about: "For scripts and programs", icon: "key", load: () => import("./Tokens.svelte") },
  { id: "people", title: "People and roles", about: "Who can sign in, and what they may do", icon: "users", isForOwners: true, load: () => import("./People.svelte") },
  { id: "runners", title: "Runners", about: "Machines that run agents", icon: "computer", load: () => import("./Runners.svelte") },
  { id: "hosts", title: "Foreign hosts", about: "Machines that speak the run protocol", icon: "link", isForOwners: true, load: () => import("./Hosts.svelte") },
  { id: "audit", title: "Audit trail", about: "Who did what, and when", icon: "shield", load: () => import("./Audit.svelte") },
  { id: "keyboard", title: "Keyboard", about: "All shortcuts", icon: "command", load: () => import("./Keyboard.svelte") },
  { id: "about", title: "About", about: "Versions and licence", icon: "info", load: () => import("./About.svelte") },
];
