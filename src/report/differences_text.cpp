#include "report/differences_text.h"

#include "base/plain/error.h"
#include "report/text_lines.h"

namespace evenkeel::report {

std::vector<std::string> difference_lines(std::span<const comparison::Difference> differences) {
  std::vector<std::string> lines;
  for (const auto& difference : differences)
    lines.push_back(concat(difference.what, ": ", comparison::sides_text(difference)));
  return lines;
}

std::string differences_text(std::span<const comparison::Difference> differences) {
  std::string text;
  for (const auto& line : difference_lines(differences)) text += "  " + wrapped(line, kPageWidth - 2, 4);
  return text.empty() ? text : concat(kNotAlike, '\n', text, '\n');
}

}  // namespace evenkeel::report
