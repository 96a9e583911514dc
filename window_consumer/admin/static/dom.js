// Elements made of texts. Everything from outside goes through textContent: nothing is ever markup.
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

// Writes a text only where it is another one: what does not change costs nothing.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, wanted) {
  if (element.hidden === wanted) element.hidden = !wanted;
}
