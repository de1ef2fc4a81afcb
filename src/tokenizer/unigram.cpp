#include "tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"

namespace evenkeel::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score

/// Returns the pieces after checking their lengths. This is a function of its own because the trie is made from them.
const std::vector<std::string>& checked(const UnigramOptions& options) {
  size_t bytes = 0;
  for (size_t i = 0; i < options.pieces.size(); ++i) {
    const auto& piece = options.pieces[i];
    bytes += piece.size();
    EK_CHECK(piece.size() <= UnigramEncoder::kLongestPiece, kData, "model.vocab[", i, "]: the piece has ", piece.size(),
             " bytes, allowed: up to ", UnigramEncoder::kLongestPiece);
    EK_CHECK(std::isfinite(options.scores[i]), kData, "model.vocab[", i, "]: the score is ", options.scores[i]);
  }
  EK_CHECK(bytes <= UnigramEncoder::kMostBytes, kData, "model.vocab has pieces of ", bytes,
           " bytes together, allowed: up to ", UnigramEncoder::kMostBytes);
  return options.pieces;
}

std::array<int64_t, 256> ids_of_bytes(const std::unordered_map<std::string, int64_t>& ids, bool byte_fallback) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::array<int64_t, 256> out;
  out.fill(-1);
  for (unsigned byte = 0; byte < 256 && byte_fallback; ++byte) {
    const auto found = ids.find(concat("<0x", kDigits.substr(byte >> 4, 1), kDigits.substr(byte & 15, 1), ">"));
    if (found != ids.end()) out[byte] = found->second;
  }
  return out;
}

}  // namespace

UnigramEncoder::UnigramEncoder(UnigramOptions options) : trie_(checked(options)) {
  const auto count = static_cast<int64_t>(options.pieces.size());
  const auto unk_id = options.unk_id;
  EK_CHECK(!unk_id || (*unk_id >= 0 && *unk_id < count), kData, "model.unk_id is ", unk_id.value_or(0),
           ", the vocabulary has ", count, " pieces");
  if (unk_id) unk_id_ = static_cast<int32_t>(*unk_id);
  if (count > 0) unk_score_ = *std::min_element(options.scores.begin(), options.scores.end()) - kUnknownPenalty;
  for (int64_t id = 0; id < count; ++id) ids_.insert_or_assign(std::move(options.pieces[id]), id);
  scores_ = std::move(options.scores);
  byte_ids_ = ids_of_bytes(ids_, options.byte_fallback);
}

/// Takes a division if it is better than the one that is known. Of two equal ones, the first counts.
void UnigramEncoder::offer(Best& best, double score, size_t length, int32_t piece) {
  if (best.length == 0 || score > best.score) best = {score, static_cast<uint32_t>(length), piece};
}

/// Offers the unknown token for one character. Without such a token, this is an error even if a longer piece that
/// contains the character would win, as in the library.
void UnigramEncoder::offer_unknown(Best& best, double before, std::string_view character) const {
  const double score = unk_score_ + before;
  const bool refused = unk_id_ < 0 && (best.length == 0 || score > best.score);
  EK_CHECK(!refused, kData, "the vocabulary has no piece for \"", shown(character), "\", and model.unk_id is null");
  offer(best, score, character.size(), unk_id_);
}

std::vector<UnigramEncoder::Best> UnigramEncoder::best_divisions(std::string_view word) const {
  std::vector<Best> best(word.size() + 1);
  for (size_t at = 0; at < word.size();) {
    const size_t character = unicode::decode(word.data() + at).length;
    const double before = best[at].score;
    bool known = false;
    trie_.find_prefixes(word.substr(at), [&](size_t length, int32_t piece) {
      offer(best[at + length], scores_[piece] + before, length, piece);
      known |= length == character;
    });
    if (!known) offer_unknown(best[at + character], before, word.substr(at, character));
    at += character;
  }
  return best;
}

/// Appends a run of unknown characters. As in the library, the run may be a piece itself: if scores are above 0, two
/// unknown characters may be better than the piece.
void UnigramEncoder::append_unknown(std::string_view run, std::vector<int64_t>& out) const {
  if (const auto whole = ids_.find(std::string(run)); whole != ids_.end()) return out.push_back(whole->second);
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!std::all_of(run.begin(), run.end(), [&](char byte) { return id_of(byte) >= 0; })) return out.push_back(unk_id_);
  for (const char byte : run) out.push_back(id_of(byte));
}

void UnigramEncoder::encode(std::string_view word, std::vector<int64_t>& out) const {
  EK_CHECK(word.size() < UINT32_MAX, kData, "a word of ", word.size(), " bytes");
  const auto best = best_divisions(word);
  std::vector<Best> pieces;
  for (size_t end = word.size(); end > 0; end -= best[end].length) pieces.push_back(best[end]);
  size_t at = 0;
  for (size_t i = pieces.size(); i-- > 0;) {
    const size_t begin = at;
    at += pieces[i].length;
    if (pieces[i].piece != unk_id_) {
      out.push_back(pieces[i].piece);
      continue;
    }
    for (; i > 0 && pieces[i - 1].piece == unk_id_; --i) at += pieces[i - 1].length;
    append_unknown(word.substr(begin, at - begin), out);
  }
}

}  // namespace evenkeel::tokenizer
