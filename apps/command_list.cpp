#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/config_keys.h"
#include "apps/method_flag.h"
#include "apps/paper_list.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/system/device.h"
#include "data/tasks.h"
#include "fed/run/product_speed.h"
#include "methods/method_registry.h"
#include "models/causal_lm.h"

namespace evenkeel::apps {
namespace {

/// One line of the output, as text and as JSON.
struct Line {
  std::string name, text;
  OrderedJson json{{"name", name}, {"text", text}};
};

std::string_view word_of(methods::MethodFamily family) {
  if (family == methods::MethodFamily::kSparsity) return "sparsity";
  return family == methods::MethodFamily::kRank ? "rank" : "homogeneous";
}

OrderedJson json_of(const methods::MethodEntry& method) {
  return {{"name", method.name},
          {"title", method.title},
          {"paper", method.paper},
          {"family", word_of(method.family)},
          {"exact", method.exact},
          {"needs_experts", method.needs_experts},
          {"gate_norm", config::name_of(method.gate_norm)},
          {"changes_base", method.changes_base},
          {"sends", method.sends}};
}

std::vector<Line> method_lines(const std::string& /*section*/) {
  std::vector<Line> lines;
  for (const auto& method : methods::methods())
    lines.push_back({std::string(method.name), concat(method.title, ": ", method.paper), json_of(method)});
  return lines;
}

std::vector<Line> model_lines(const std::string& /*section*/) {
  std::vector<Line> lines;
  for (const auto& family : models::model_families())
    lines.push_back({std::string(family.family), concat(family.has_experts ? "sparse" : "dense",
                                                        ", any folder of that model_type: ", family.source)});
  lines.push_back({"builtin:tiny-olmoe", concat("olmoe, ships with the program: ",
                                                models::find_model_folder("builtin:tiny-olmoe").string())});
  return lines;
}

std::string allowed_answers(const data::TaskInfo& task) {
  if (task.free_text()) return "in any words";
  return task.answers.empty() ? "among the options of the row" : join(task.answers, "/");
}

std::vector<Line> task_lines(const std::string& /*section*/) {
  std::vector<Line> lines;
  for (const auto& task : data::tasks())
    lines.push_back({task.name, concat(task.source, "; answers ", allowed_answers(task))});
  return lines;
}

/// Returns the first line of a TOML file if it is a comment.
std::string description(const fs::path& file) {
  const std::string text = read_file(file);
  if (!text.starts_with("#")) return {};
  const auto start = text.find_first_not_of("# ");
  return start == std::string::npos ? std::string() : text.substr(start, text.find('\n', start) - start);
}

/// Lists the shipped configs by paths that are valid in the working folder.
std::vector<Line> config_lines(const std::string& /*section*/) {
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

std::vector<Line> key_lines(const std::string& section) {
  std::vector<Line> lines;
  for (const auto& key : section.empty() ? config_keys() : config_keys(section))
    lines.push_back(
        {concat(key.key, " = ", key.value.empty() ? "(none)" : key.value),
         concat(key.help, key.allowed.empty() ? "" : concat("; allowed: ", key.allowed)),
         {{"key", key.key}, {"type", key.type}, {"default", key.value}, {"allowed", key.allowed}, {"help", key.help}}});
  return lines;
}

/// Prints the lines. The column of names is as wide as the widest name, except for a few very long ones.
void print_lines(const std::vector<Line>& lines) {
  constexpr size_t kWidest = 60;
  size_t width = 0;
  for (const auto& line : lines)
    if (line.name.size() <= kWidest) width = std::max(width, line.name.size());
  for (const auto& line : lines)
    std::cout << line.name << std::string(std::max(width, line.name.size()) - line.name.size() + 2, ' ') << line.text
              << '\n';
}

void print_json(const std::vector<Line>& lines) {
  for (const auto& line : lines) std::cout << line.json.dump() << '\n';
}

/// Describes the products of a run: their type, the number of threads and the device.
std::string products_of(const fed::ExperimentConfig& config, c10::Device device) {
  const auto threads = config.threads * config.clients.parallel;
  const auto of_threads =
      device.is_cpu() && threads > 0 ? concat(threads, threads > 1 ? " threads, " : " thread, ") : "";
  return concat(config::name_of(config.model.compute_dtype), ", ", of_threads, device_text(device));
}

/// Measures each kind of product once.
class ProductSpeeds {
 public:
  /// Returns nothing if the run's device is not here.
  std::optional<double> of(const fed::ExperimentConfig& config) {
    try {
      return measured(config, products_of(config, find_device(config.model.device, "model.device")));
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  const std::vector<ProductSpeed>& all() const { return all_; }

 private:
  double measured(const fed::ExperimentConfig& config, const std::string& how) {
    for (const auto& known : all_)
      if (known.how == how) return known.flops;
    return all_.emplace_back(ProductSpeed{fed::product_speed(config), how}).flops;
  }
  std::vector<ProductSpeed> all_{};
};

/// Lists the tables of the paper. It takes half a second to measure how fast this machine is for one kind of products.
void list_tables(bool as_json) {
  ProductSpeeds speeds;
  const auto tables = study::paper_tables();
  const auto studies = study::paper_studies([&](const auto& config) { return speeds.of(config); });
  if (!as_json) std::cout << paper_list_text(tables, studies, speeds.all());
  for (const auto& table : tables)
    if (as_json) std::cout << paper_table_json(table, studies).dump() << '\n';
}

struct Listing {
  std::string_view what;
  std::vector<Line> (*lines)(const std::string& section);
};
constexpr std::array kListings{Listing{"methods", method_lines}, Listing{"models", model_lines},
                               Listing{"tasks", task_lines}, Listing{"configs", config_lines},
                               Listing{"keys", key_lines}};
constexpr std::string_view kTables = "tables";

struct ListFlags {
  MethodFlag method;
  std::string what, section;
  bool json = false;
};

void run_list(const ListFlags& flags) {
  const auto& what = flags.what;
  std::vector<std::string_view> known;
  for (const auto& listing : kListings) known.push_back(listing.what);
  known.push_back(kTables);
  const auto* found = std::find_if(kListings.begin(), kListings.end(), [&](const auto& l) { return l.what == what; });
  EK_CHECK(found != kListings.end() || what == kTables, kConfig, "list: \"", what,
           "\" is unknown, allowed: ", join(known));
  EK_CHECK(flags.section.empty() || what == "keys", kConfig, "list ", what, " takes no second word; \"", flags.section,
           "\" would be a section of list keys");
  if (what == kTables) return list_tables(flags.json);
  const auto lines = found->lines(flags.section);
  flags.json ? print_json(lines) : print_lines(lines);
}

}  // namespace

void add_list_command(CLI::App& program) {
  auto flags = std::make_shared<ListFlags>();
  auto* command = program.add_subcommand(
      "list", "what there is: methods, models, tasks, configs, keys of a config, tables of the paper");
  command->footer(
      "Example: evenkeel list methods\n"
      "         evenkeel list keys train\n\n"
      "One line each, with its source; keys with default, meaning and allowed values; tables of the paper with the "
      "studies\nthat fill them, how far these are, and the time that the rest will take. `evenkeel study FILE "
      "--dry-run` "
      "prints memory\nand disk too.");
  command->add_option("WHAT", flags->what, "methods, models, tasks, configs, keys or tables")->required();
  flags->method.add_to(*command, "to list too");
  command->add_option("SECTION", flags->section, "of keys: a section of the config, or a method (default: all)");
  command->add_flag("--json", flags->json, "one JSON line each");
  command->callback([flags] { run_list(*flags); });
}

}  // namespace evenkeel::apps
