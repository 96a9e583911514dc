// Light or dark: the system's setting, unless the user has chosen.
const KEY = "wc-theme";
const root = document.documentElement;

export function applyTheme() {
  const chosen = localStorage.getItem(KEY);
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  else delete root.dataset.theme;
}

export function isDark() {
  const chosen = root.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function switchTheme() {
  localStorage.setItem(KEY, isDark() ? "light" : "dark");
  applyTheme();
}
