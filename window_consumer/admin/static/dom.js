// Builds elements. All foreign text goes through textContent, so it is never parsed as markup.
export function make(name, { cls, text, ...attributes } = {}, ...children) {
  const element = document.createElement(name);
  if (cls) element.className = cls;
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// Sets a text only if it changes, so that an unchanged one costs no layout.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, wanted) {
  if (element.hidden === wanted) element.hidden = !wanted;
}
