#include "apps/method_flag.h"

#include <algorithm>

#include "base/plain/error.h"
#include "host/add_method.h"

namespace evenkeel::apps {
namespace {

void add_flag(CLI::App& command, MethodFlag& flag, const std::string& text) {
  command
      .add_option_function<std::vector<std::string>>(
          "--method",
          [&flag](const std::vector<std::string>& sources) {
            for (const auto& source : sources) {
              flag.names.push_back(host::add_method_of(source));
              flag.sources.push_back(source);
            }
          },
          text)
      ->type_name("FILE.py:CLASS");
}

}  // namespace

void MethodFlag::add_to(CLI::App& command, const std::string& text) {
  add_flag(command, *this, concat("class of a method in Python, ", text));
}

void MethodFlag::add_choice_to(CLI::App& command) {
  add_flag(command, *this,
           "train with the method of this class in Python (docs/tutorial-new-method.md); of several, with "
           "the first");
  command.add_flag("--changed-method", changed, "--resume: go on although the source of the method has changed");
}

std::vector<std::string> MethodFlag::settings() const {
  if (names.empty()) return {};
  return {concat("method.name=\"", names.front(), "\"")};
}

std::map<std::string, std::string> MethodFlag::by_name() const {
  std::map<std::string, std::string> sources_by_name;
  for (size_t i = 0; i < names.size(); ++i) sources_by_name[names[i]] = sources[i];
  return sources_by_name;
}

std::vector<std::string> MethodFlag::words() const {
  std::vector<std::string> words;
  for (const auto& source : sources) words.insert(words.end(), {"--method", source});
  return words;
}

void check_method_of_run(const MethodFlag& flag, const std::string& run) {
  EK_CHECK(flag.names.empty() || !run.empty(), kConfig, "--method is ", flag.sources.front(),
           ", and goes with --run: a model has no method");
}

}  // namespace evenkeel::apps
