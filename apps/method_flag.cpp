#include "apps/method_flag.h"

#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "host/add_method.h"
#include "methods/described_method.h"

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
  for (const auto& name : names) {
    const auto& own = *methods::find_method(name).described;
    const auto flag = methods::method_flag(own.file, own.class_name);
    words.insert(words.end(), flag.begin(), flag.end());
  }
  return words;
}

void MethodFlag::check_choice(const std::string& file, const std::vector<std::string>& settings) const {
  if (names.empty()) return;
  auto given = config::Table::parse("", "--set");
  for (const auto& setting : settings) given.set(setting);
  const auto name = given.table("method").string("name");
  if (!name || std::find(names.begin(), names.end(), *name) != names.end()) return;
  const auto table = config::Table::load(file);  // that of a study's run may have keys of other arms' methods
  const auto has_keys = [&](const std::string& own) { return table.contains_path(concat("method.", own)); };
  EK_CHECK(std::any_of(names.begin(), names.end(), has_keys), kConfig, "--set method.name is ", shown(*name),
           ", but --method is ", join(sources), ": give one of the two");
}

void check_method_of_run(const MethodFlag& flag, const std::string& run) {
  EK_CHECK(flag.names.empty() || !run.empty(), kConfig, "--method is ", flag.sources.front(),
           ", and goes with --run: a model has no method");
}

}  // namespace evenkeel::apps
