#include "scoring/bert_score_tables.h"

#include <array>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel::scoring {
namespace {

struct LayerEntry {
  std::string_view name;  // model name without the owner
  int64_t layer;
};

constexpr std::array kLayers{
    LayerEntry{"bert-base-uncased", 9},
    LayerEntry{"bert-large-uncased", 18},
    LayerEntry{"bert-base-cased-finetuned-mrpc", 9},
    LayerEntry{"bert-base-multilingual-cased", 9},
    LayerEntry{"bert-base-chinese", 8},
    LayerEntry{"bert-base-turkish-cased", 10},
    LayerEntry{"bert_uncased_L-2_H-128_A-2", 1},
    LayerEntry{"bert_uncased_L-4_H-256_A-4", 3},
    LayerEntry{"bert_uncased_L-4_H-512_A-8", 3},
    LayerEntry{"bert_uncased_L-8_H-512_A-8", 6},
    LayerEntry{"scibert_scivocab_uncased", 8},
    LayerEntry{"scibert_scivocab_cased", 9},
    LayerEntry{"spanbert-base-cased", 8},
    LayerEntry{"spanbert-large-cased", 17},
    LayerEntry{"finbert", 10},
    LayerEntry{"unsup-simcse-bert-base-uncased", 10},
    LayerEntry{"unsup-simcse-bert-large-uncased", 18},
    LayerEntry{"sup-simcse-bert-base-uncased", 10},
    LayerEntry{"sup-simcse-bert-large-uncased", 18},
    LayerEntry{"roberta-base", 10},
    LayerEntry{"roberta-large", 17},
    LayerEntry{"roberta-large-mnli", 19},
    LayerEntry{"roberta-base-openai-detector", 7},
    LayerEntry{"roberta-large-openai-detector", 15},
    LayerEntry{"distilroberta-base", 5},
    LayerEntry{"unsup-simcse-roberta-base", 8},
    LayerEntry{"unsup-simcse-roberta-large", 13},
    LayerEntry{"sup-simcse-roberta-base", 10},
    LayerEntry{"sup-simcse-roberta-large", 16},
    LayerEntry{"xlm-roberta-base", 9},
    LayerEntry{"xlm-roberta-large", 17},
};

constexpr std::string_view kHeader = "LAYER,P,R,F";

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t comma; (comma = line.find(',')) != std::string_view::npos; line.remove_prefix(comma + 1))
    fields.push_back(line.substr(0, comma));
  fields.push_back(line);
  return fields;
}

double number_of(std::string_view field, const std::string& origin) {
  const auto value = parse_number<double>(field);
  EK_CHECK(value, kData, origin, ": \"", shown(field), "\" is not a number");
  return *value;
}

double baseline_of(std::string_view field, const std::string& origin) {
  const double value = number_of(field, origin);
  EK_CHECK(std::isfinite(value) && value < 1, kData, origin, ": a baseline is ", value, ", allowed: below 1");
  return value;
}

/// Reads the next line without its line end, \n or \r\n.
bool read_line(std::istream& lines, std::string& line) {
  if (!std::getline(lines, line)) return false;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace

std::optional<int64_t> default_layer(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);
  for (const auto& entry : kLayers)
    if (entry.name == name) return entry.layer;
  return std::nullopt;
}

MatchScore load_baseline(const std::filesystem::path& file, int64_t layer) {
  constexpr size_t kMaxBytes = 1 << 20;
  std::istringstream lines(read_file(file, kMaxBytes));
  std::string line;
  EK_CHECK(read_line(lines, line) && line == kHeader, kData, file.string(), ": the first line is \"", shown(line),
           "\", expected \"", kHeader, "\"");
  for (int64_t number = 2; read_line(lines, line); ++number) {
    const auto origin = concat(file.string(), " line ", number);
    const auto fields = fields_of(line);
    EK_CHECK(fields.size() == 4, kData, origin, ": ", fields.size(), " fields, expected 4: ", kHeader);
    if (number_of(fields[0], origin) != static_cast<double>(layer)) continue;
    return {baseline_of(fields[1], origin), baseline_of(fields[2], origin), baseline_of(fields[3], origin)};
  }
  fail(kData, file.string(), " has no row for layer ", layer);
}

}  // namespace evenkeel::scoring
