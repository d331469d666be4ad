/** The colours: light, dark, or as the system says. The choice is kept in this browser. */

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "theme";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];
export const theme = signal<Theme>(stored());

export function applyTheme(chosen: Theme = theme.value): void {
  theme.value = chosen;
  if (chosen === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(KEY);
  } else {
    document.documentElement.dataset.theme = chosen;
    localStorage.setItem(KEY, chosen);
  }
}

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "system";
}
