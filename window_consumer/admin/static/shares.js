// Classes of records that share the slots: those that have used most, and the sum of the others.
import { make, say, show } from "./dom.js";
import { count, duration } from "./words.js";

const COLUMNS = [["class", "key"], ["weight", "number"], ["slots", "number"], ["records waiting", "number"], ["slot time used", "number optional"], ["no call for", "number"]];

export class Shares {
  constructor() {
    this.caption = make("caption");
    this.body = make("tbody");
    const head = make("tr", {}, ...COLUMNS.map(([text, cls]) => make("th", { text, scope: "col", cls })));
    this.element = make("table", { cls: "shares" }, this.caption, make("thead", {}, head), this.body);
    this.element.hidden = true;
  }

  update(shares) {
    const found = shares?.largest ?? [];
    show(this.element, found.length > 0);
    const overflow = shares?.overflow ? `; records of further classes: ${count(shares.overflow)}` : "";
    say(this.caption, shares ? `Classes that share the slots (${shares.order}): ${count(shares.classes)}${overflow}` : "");
    while (this.body.children.length > found.length) this.body.lastChild.remove();
    found.forEach((each, index) => {
      if (!this.body.children[index]) this.body.append(make("tr", {}, ...COLUMNS.map(([, cls]) => make("td", { cls }))));
      const texts = [each.name, each.weight ? `${each.weight}` : "", count(each.slots), count(each.waiting), duration(each.used_s), each.starved_s ? duration(each.starved_s) : ""];
      texts.forEach((text, column) => say(this.body.children[index].children[column], text));
    });
  }
}
