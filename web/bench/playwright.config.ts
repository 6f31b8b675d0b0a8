import { defineConfig } from "@playwright/test";

import tests from "../playwright.config.ts";

/** Measures the app in the browser: `npm run bench`, or `make bench-web`. One thing at a time, and nothing beside it. */
export default defineConfig({
  testDir: ".",
  testMatch: "*.bench.ts",
  workers: 1,
  timeout: 600_000,
  expect: { timeout: 30_000 },
  reporter: [["./reporter.ts"]],
  outputDir: "../test-results/bench",
  use: { ...tests.use, screenshot: "off", viewport: { width: 1440, height: 900 } },
});
