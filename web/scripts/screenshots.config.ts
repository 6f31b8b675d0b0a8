import { defineConfig } from "@playwright/test";

import tests from "../playwright.config.ts";

/** Makes the pictures of docs/images: `npm run screenshots`. */
export default defineConfig({
  testDir: ".",
  testMatch: "screenshots.ts",
  workers: 1,
  timeout: 300_000,
  expect: { timeout: 30_000 },
  reporter: [["list"]],
  outputDir: "../test-results/screenshots",
  use: { ...tests.use, screenshot: "off" },
});
