// What all pages share: links to each other, light or dark, the role, and logging out.
import { make, show } from "./dom.js";
import { applyTheme, switchTheme } from "./theme.js";

// The page of this script is at its front's level; `here` is its path relative to that.
export async function navigate(here, onTheme = () => {}) {
  applyTheme();
  document.getElementById("theme").addEventListener("click", () => { switchTheme(); onTheme(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onTheme);
  const response = await fetch("api/session").catch(() => null);
  if (response?.status === 401) location.assign("login");
  if (!response?.ok) return null;
  const session = await response.json();
  document.documentElement.dataset.role = session.role;
  show(document.getElementById("logout"), session.token);
  if (session.name) document.querySelector("#logout button").title = `${session.name}, role ${session.role}`;
  const others = session.links.length > 1 ? session.links : [];
  document.getElementById("nav").replaceChildren(...others.map(([href, text]) => make("a", { href, text, "aria-current": href === here ? "page" : null })));
  return session;
}

export async function ask(path, options) {
  const response = await fetch(path, options);
  if (response.status === 401) location.assign("login");
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? response.statusText);
  return body;
}
