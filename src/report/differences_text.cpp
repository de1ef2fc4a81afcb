#include "report/differences_text.h"

#include <string_view>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "report/text_grid.h"

namespace evenkeel::report {

std::string differences_text(std::span<const records::RunRecords> runs) {
  std::string text;
  for (const auto& difference : comparison::differences(runs)) {
    std::string line = difference.what + ": ";
    std::string_view gap;
    for (const auto& side : difference.sides) {
      line += concat(gap, side.value, " (", join(side.runs), ')');
      gap = "; ";
    }
    text += "  " + wrapped(line, kPageWidth - 2, 4);
  }
  return text.empty()
             ? text
             : "NOT ALIKE: the runs differ in more than their methods, and so may their figures\n" + text + '\n';
}

}  // namespace evenkeel::report
