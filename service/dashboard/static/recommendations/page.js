// The recommendations, and the page of one.

import { copyOnClick } from "../shared/copying.js";
import { keepTimes } from "../shared/times.js";

copyOnClick();
keepTimes();
