#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "base/plain/files.h"
#include "data/tasks.h"
#include "methods/method_registry.h"
#include "models/causal_lm.h"

namespace evenkeel {
namespace {

struct Line {
  std::string name, text;
};

std::vector<Line> method_lines() {
  std::vector<Line> lines;
  for (const auto& method : methods())
    lines.push_back({std::string(method.name), concat(method.title, ": ", method.paper)});
  return lines;
}

std::vector<Line> model_lines() {
  std::vector<Line> lines;
  for (const auto& family : model_families())
    lines.push_back({std::string(family.family), concat(family.has_experts ? "sparse" : "dense",
                                                        ", any folder of that model_type: ", family.source)});
  lines.push_back({"builtin:tiny-olmoe",
                   concat("olmoe, ships with the program: ", resolve_model_path("builtin:tiny-olmoe").string())});
  return lines;
}

std::vector<Line> task_lines() {
  std::vector<Line> lines;
  for (const auto& task : tasks())
    lines.push_back(
        {task.name, concat(task.source, "; answers ", task.free_text() ? "in any words" : join(task.answers, "/"))});
  return lines;
}

/// The first line of a TOML file, when it is a comment.
std::string description(const fs::path& file) {
  const std::string text = read_file(file);
  if (!text.starts_with("#")) return {};
  const auto start = text.find_first_not_of("# ");
  return start == std::string::npos ? std::string() : text.substr(start, text.find('\n', start) - start);
}

/// Paths that work from where the program was called: short ones in the folder that holds the configs.
std::vector<Line> config_lines() {
  const auto root = shipped_folder();
  std::error_code unknown;  // then it is no such folder
  const bool here = fs::equivalent(root, ".", unknown);
  std::vector<Line> lines;
  for (const auto& entry : fs::recursive_directory_iterator(root / "configs"))
    if (entry.path().extension() == ".toml")
      lines.push_back({(here ? fs::relative(entry.path(), root) : entry.path()).string(), description(entry.path())});
  std::sort(lines.begin(), lines.end(), [](const Line& x, const Line& y) { return x.name < y.name; });
  return lines;
}

struct Listing {
  std::string_view what;
  std::vector<Line> (*lines)();
};
constexpr std::array kListings{Listing{"methods", method_lines}, Listing{"models", model_lines},
                               Listing{"tasks", task_lines}, Listing{"configs", config_lines}};

void run_list(const std::string& what) {
  std::vector<std::string_view> known;
  for (const auto& listing : kListings) known.push_back(listing.what);
  const auto* found = std::find_if(kListings.begin(), kListings.end(), [&](const auto& l) { return l.what == what; });
  EK_CHECK(found != kListings.end(), kConfig, "list: \"", what, "\" is unknown, allowed: ", join(known));
  const auto lines = found->lines();
  size_t width = 0;
  for (const auto& line : lines) width = std::max(width, line.name.size());
  for (const auto& line : lines)
    std::cout << line.name << std::string(width - line.name.size() + 2, ' ') << line.text << '\n';
}

}  // namespace

void add_list_command(CLI::App& program) {
  auto what = std::make_shared<std::string>();
  auto* command = program.add_subcommand("list", "what there is: methods, models, tasks or configs");
  command->footer("Example: evenkeel list methods\n\nOne line each, with its source.");
  command->add_option("WHAT", *what, "methods, models, tasks or configs")->required();
  command->callback([what] { run_list(*what); });
}

}  // namespace evenkeel
