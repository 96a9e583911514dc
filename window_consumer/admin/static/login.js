// Says that the token was wrong, where the form is shown once more for that.
import { applyTheme } from "./theme.js";

applyTheme();
document.getElementById("wrong").hidden = location.search !== "?wrong";
