// Keys in the ladder, with what waits behind their first records: those that have been there longest.
import { make, say, show } from "./dom.js";
import { count, duration, nameOf } from "./words.js";

const COLUMNS = [["key", "key"], ["first record", ""], ["its copy, once due", "optional"], ["in the ladder for", "number"], ["records behind it", "number"]];

export class ParkedKeys {
  constructor() {
    this.caption = make("caption");
    this.body = make("tbody");
    const head = make("tr", {}, ...COLUMNS.map(([text, cls]) => make("th", { text, scope: "col", cls })));
    this.element = make("table", { cls: "parked" }, this.caption, make("thead", {}, head), this.body);
    this.element.hidden = true;
  }

  update(parked) {
    show(this.element, Boolean(parked?.followers));
    const found = parked?.longest ?? [];
    say(this.caption, parked ? `Keys in the ladder: ${count(parked.keys)}; records behind the first of theirs: ${count(parked.followers)}` : "");
    while (this.body.children.length > found.length) this.body.lastChild.remove();
    found.forEach((each, index) => {
      if (!this.body.children[index]) this.body.append(make("tr", {}, ...COLUMNS.map(([, cls]) => make("td", { cls }))));
      const texts = [each.key, `${nameOf(each.name)}@${each.offset}`, each.copy, duration(each.in_ladder_s), count(each.followers)];
      texts.forEach((text, column) => say(this.body.children[index].children[column], text));
    });
  }
}
