#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>
#include <unordered_set>

#include "base/log.h"
#include "base/text.h"

namespace evenkeel {
namespace {

constexpr int64_t kLargestId = int64_t{1} << 22;  // tables are as long as the largest id

constexpr int64_t kMostTemplates = 16;     // each is applied to every text
constexpr size_t kMostTemplateIds = 1024;  // so many are put around every text

int64_t id_of(const JsonView& json) { return json.integer(0, kLargestId); }

std::string type_of(const JsonView& json) { return json.at("type").string(); }

[[noreturn]] void refuse_type(const JsonView& json, std::string_view allowed) {
  const auto type = json.at("type");
  type.refuse(" is ", shown(type.json()), ", allowed: ", allowed);
}

void read_vocabulary(const JsonView& json, TokenizerFile& out) {
  std::unordered_set<int64_t> seen;
  out.vocabulary.reserve(json.size());
  for (const auto& token : json.members()) {
    const int64_t id = id_of(token);
    token.require(seen.insert(id).second, " has id ", id, ", which another token has too");
    out.vocabulary.emplace(token.key(), id);
  }
}

/// A merge is a pair ["a", "b"] or, in older files, one string "a b".
std::pair<std::string, std::string> merge_of(const JsonView& json) {
  if (json.json().is_array() && json.size() == 2) return {json.at(0).string(), json.at(1).string()};
  const std::string_view line = json.json().is_string() ? std::string_view(json.string()) : std::string_view();
  const size_t gap = line.find(' ');
  const bool two = gap != line.npos && line.find(' ', gap + 1) == line.npos;
  if (!two) json.refuse(" is ", shown(json.json()), ", expected \"a b\" or [\"a\", \"b\"]");
  return {std::string(line.substr(0, gap)), std::string(line.substr(gap + 1))};
}

void read_merges(const JsonView& json, TokenizerFile& out) {
  const auto merges = json.items();
  out.merges.reserve(merges.size());
  for (const auto& merge : merges)
    if (!merge.json().is_string() || !merge.string().starts_with("#version")) out.merges.push_back(merge_of(merge));
}

void read_word_piece(const JsonView& json, TokenizerFile& out) {
  out.word_piece = {.unk_token = json.at("unk_token").string(),
                    .prefix = json.at("continuing_subword_prefix").string(),
                    .max_characters = json.at("max_input_chars_per_word").integer(0)};
  read_vocabulary(json.at("vocab"), out);
}

/// \throws unless the value under `key` is absent, null or says "not used" in one of the library's ways.
void require_unused(const JsonView& json, std::string_view key, std::initializer_list<Json> allowed) {
  const auto value = json.find(key);
  if (!value || std::find(allowed.begin(), allowed.end(), value->json()) != allowed.end()) return;
  value->refuse(" is ", shown(value->json()), ", allowed: null");
}

void read_bpe(const JsonView& json, TokenizerFile& out) {
  require_unused(json, "dropout", {false, 0});
  require_unused(json, "continuing_subword_prefix", {""});
  require_unused(json, "end_of_word_suffix", {""});
  require_unused(json, "byte_fallback", {false});
  if (const auto unknown = json.find("unk_token")) out.bpe.unk_token = unknown->string();
  out.bpe.fuse_unk = json.flag_or("fuse_unk", false);
  out.bpe.ignore_merges = json.flag_or("ignore_merges", false);
  read_vocabulary(json.at("vocab"), out);
  read_merges(json.at("merges"), out);
}

void read_model(const JsonView& json, TokenizerFile& out) {
  const auto type = json.string_or("type", "BPE");
  if (type != "BPE" && type != "WordPiece") refuse_type(json, "BPE, WordPiece");
  type == "BPE" ? read_bpe(json, out) : read_word_piece(json, out);
}

AddedToken added_of(const JsonView& json) {
  AddedToken token;
  token.id = id_of(json.at("id"));
  token.content = json.at("content").string();
  token.single_word = json.flag_or("single_word", false);
  token.lstrip = json.flag_or("lstrip", false);
  token.rstrip = json.flag_or("rstrip", false);
  token.normalized = json.flag_or("normalized", false);
  token.special = json.flag_or("special", false);
  return token;
}

/// The id counts only for tokens of the vocabulary; others are numbered on from its size, as the library does when it
/// loads.
void read_added(const JsonView& json, TokenizerFile& out) {
  std::unordered_map<std::string, size_t> index;
  auto next = static_cast<int64_t>(out.vocabulary.size());
  for (const auto& entry : json.items()) {
    auto token = added_of(entry);
    if (token.content.empty()) continue;
    const auto in_vocabulary = out.vocabulary.find(token.content);
    const auto before = index.find(token.content);
    const int64_t id = in_vocabulary != out.vocabulary.end() ? in_vocabulary->second
                       : before != index.end()               ? out.added[before->second].id
                                                             : next++;
    if (id != token.id)
      log::warning("[data] ", entry.place(), ": added token \"", shown(token.content), "\" is listed with id ",
                   token.id, " but has id ", id);
    token.id = id;
    if (before != index.end())
      out.added[before->second] = std::move(token);
    else if (index.emplace(token.content, out.added.size()).second)
      out.added.push_back(std::move(token));
  }
}

BertNormalizer bert_normalizer(const JsonView& json) {
  BertNormalizer bert{.clean_text = json.at("clean_text").flag(),
                      .handle_chinese_chars = json.at("handle_chinese_chars").flag(),
                      .lowercase = json.at("lowercase").flag()};
  if (const auto strip = json.find("strip_accents")) bert.strip_accents = strip->flag();
  return bert;
}

// The three graphs below nest as deep as JSON does (JsonLimits::depth).

void read_normalizer(const JsonView& json, TokenizerFile& out) {
  const auto type = type_of(json);
  json.require(!out.bert, ": nothing may follow BertNormalizer");
  if (type == "NFC") {
    out.nfc = true;
  } else if (type == "BertNormalizer") {
    out.bert = bert_normalizer(json);
  } else if (type == "Sequence") {
    for (const auto& part : json.at("normalizers").items()) read_normalizer(part, out);
  } else {
    refuse_type(json, "NFC, BertNormalizer, Sequence, or no normalizer");
  }
}

TemplatePiece special_piece(const JsonView& json) {
  json.require(json.list().size() == 2, " is ", shown(json.json()), ", expected [token, id]");
  return {false, {id_of(json.at(1))}};
}

TemplatePiece template_piece(const JsonView& json, const JsonView& specials) {
  if (const auto sequence = json.find("Sequence")) {
    const auto id = sequence->at("id");
    id.require(id.json() == "A", " is ", shown(id.json()), ", allowed: \"A\"");
    return {true, {}};
  }
  return {false, specials.at(json.at("SpecialToken").at("id").string()).at("ids").integers(0, kLargestId)};
}

Template read_template(const JsonView& json) {
  const auto single = json.at("single"), specials = json.at("special_tokens");
  Template out;
  size_t sequences = 0, ids = 0;
  for (const auto& piece : single.items()) {
    out.push_back(template_piece(piece, specials));
    sequences += out.back().is_sequence ? 1 : 0;
    ids += out.back().ids.size();
    piece.require(sequences <= 1, ": the sequence stands twice in a template, allowed: once");
    piece.require(ids <= kMostTemplateIds, ": a template of more than ", kMostTemplateIds, " special tokens");
  }
  return out;
}

void read_post_processor(const JsonView& json, TokenizerFile& out) {
  const auto type = type_of(json);
  if (type == "ByteLevel") return;  // trims offsets only
  if (type == "Sequence") {
    for (const auto& part : json.at("processors").items()) read_post_processor(part, out);
    return;
  }
  if (type == "TemplateProcessing")
    out.templates.push_back(read_template(json));
  else if (type == "RobertaProcessing" || type == "BertProcessing")
    out.templates.push_back({special_piece(json.at("cls")), {true, {}}, special_piece(json.at("sep"))});
  else
    refuse_type(json, "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, Sequence");
  json.require(out.templates.size() <= kMostTemplates, ": more than ", kMostTemplates, " templates");
}

void read_decoder(const JsonView& json, TokenizerFile& out) {
  const auto type = type_of(json);
  if (type != "ByteLevel" && type != "WordPiece") refuse_type(json, "ByteLevel, WordPiece");
  out.decoder = type == "ByteLevel" ? TokenDecoder::kByteLevel : TokenDecoder::kWordPiece;
  if (out.decoder == TokenDecoder::kByteLevel) return;
  out.piece_prefix = json.at("prefix").string();
  out.cleanup = json.at("cleanup").flag();
}

/// Words of WordPiece are those of BERT, words of BPE those of a byte-level split.
void read_words(const JsonView& json, TokenizerFile& out) {
  if (!out.word_piece) {
    out.pre_tokenizer.emplace(json.at("pre_tokenizer"));
    return;
  }
  const auto words = json.find("pre_tokenizer");
  json.require(words && type_of(*words) == "BertPreTokenizer", ": pre_tokenizer is ",
               words ? shown(words->json()) : "null", ", allowed with WordPiece: BertPreTokenizer");
}

TokenizerFile read_parts(const JsonView& json) {
  const auto version = json.find("version");
  json.require(!version || version->json() == "1.0", ": version is ", version ? shown(version->json()) : "",
               ", allowed: \"1.0\"");
  for (const char* setting : {"truncation", "padding"})
    if (json.has(setting))
      log::warning("[data] ", json.place(), ": ", setting, " is ignored, texts are always encoded whole");
  TokenizerFile out;
  read_model(json.at("model"), out);
  if (const auto added = json.find("added_tokens")) read_added(*added, out);
  if (const auto normalizer = json.find("normalizer")) read_normalizer(*normalizer, out);
  if (const auto processor = json.find("post_processor")) read_post_processor(*processor, out);
  out.decoder = TokenDecoder::kNone;
  if (const auto decoder = json.find("decoder")) read_decoder(*decoder, out);
  read_words(json, out);
  return out;
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& file) {
  const Json json = load_json(file, kData);
  return read_parts(JsonView(json, file.string()));
}

}  // namespace evenkeel
