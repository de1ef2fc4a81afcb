/// Splits texts with SplitPattern, for comparison with the `tokenizers` library. Reads lines {"pattern": .., "text": ..
/// or "file": NAME} from stdin. Answers each with a line: the lengths in bytes of the pieces, that is matches and
/// nonempty gaps, or a string with the reason why the pattern is rejected.
#include <iostream>
#include <string>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "tokenizer/pattern.h"

namespace evenkeel {
namespace {

Json lengths(const Json& job) {
  const auto text = job.contains("file") ? read_file(job.at("file").get<std::string>(), size_t{64} << 20)
                                         : job.at("text").get<std::string>();
  auto out = Json::array();
  for (const auto& span : tokenizer::SplitPattern::regex(job.at("pattern").get<std::string>()).find(text))
    if (span.end > span.begin) out.push_back(span.end - span.begin);
  return out;
}

}  // namespace
}  // namespace evenkeel

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << evenkeel::lengths(evenkeel::Json::parse(line)).dump() << std::endl;
    } catch (const evenkeel::Error& error) {
      std::cout << evenkeel::Json(error.what()).dump() << std::endl;
    }
  }
}
