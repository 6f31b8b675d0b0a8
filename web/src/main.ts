import { mount } from "svelte";
import "./lib/styles/tokens.css";
import "./lib/styles/base.css";
import "./lib/styles/utilities.css";
import App from "./App.svelte";
import { app } from "./lib/app.svelte.ts";
import { theme } from "./lib/browser/theme.svelte.ts";
import { appearance } from "./settings/appearance.svelte.ts";

theme.apply();
appearance.apply();
app.start();
const target = document.getElementById("app");
if (target) mount(App, { target });
// The service worker is nothing the first page waits for.
import("./push/start.ts").then(({ start }) => start()).catch((error: unknown) => console.warn("The service worker was not started.", error));
