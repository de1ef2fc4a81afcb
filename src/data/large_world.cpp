// The large built-in world. Names of entities are generated: every topic has ten first syllables of its own, and all
// topics share twelve second syllables.
#include <array>

#include "base/plain/error.h"
#include "data/builtin_world.h"

namespace evenkeel::data::world {
namespace {

using Syllables = std::array<std::string_view, 10>;

std::vector<std::string> names_from(const Syllables& first) {
  constexpr std::array<std::string_view, 12> kSecond = {"nar", "vel", "dop", "mis",  "ruk", "lan",
                                                        "tor", "bix", "gul", "sten", "fay", "hom"};
  std::vector<std::string> names;
  for (const auto start : first)
    for (const auto end : kSecond) names.push_back(concat(start, end));
  return names;
}

/// Returns the words of a text, which are separated by single spaces. \param text  a literal, which the words refer to
std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t start = 0, end = 0; end != text.npos; start = end + 1) {
    end = text.find(' ', start);
    all.push_back(text.substr(start, end == text.npos ? end : end - start));
  }
  return all;
}

Topic animal_topic() {
  constexpr Syllables kFirst = {"ba", "ko", "lu", "fe", "zi", "ma", "do", "ru", "pe", "ti"};
  return {.name = "animals",
          .entities = names_from(kFirst),
          .relations = {{"colour", "is", "is the", "", "what colour is the", "",
                         words("red blue green white black brown grey yellow")},
                        {"home", "lives in the", "does the", "live in the", "where does the", "live",
                         words("forest river desert garden cave meadow swamp ocean")},
                        {"food", "eats", "does the", "eat", "what does the", "eat",
                         words("nuts fish grass berries seeds eggs roots honey")},
                        {"enemy", "fears the", "does the", "fear the", "what does the", "fear",
                         words("wolf snake eagle spider shark tiger fire thunder")},
                        {"month", "wakes in", "does the", "wake in", "when does the", "wake",
                         words("january march april may june july august october")},
                        {"friend", "follows the", "does the", "follow the", "what does the", "follow",
                         words("farmer sheep moon herd boat child wind hunter")}}};
}

Topic plant_topic() {
  constexpr Syllables kFirst = {"sa", "ne", "vo", "hi", "ju", "wa", "gle", "bro", "fli", "dra"};
  return {.name = "plants",
          .entities = names_from(kFirst),
          .relations = {{"shape", "has leaves like a", "does the", "have leaves like a", "what are the leaves of the",
                         "like", words("star heart needle hand coin feather sword spoon")},
                        {"soil", "grows on", "does the", "grow on", "what does the", "grow on",
                         words("sand clay rock peat chalk gravel mud ash")},
                        {"use", "cures the", "does the", "cure the", "what does the", "cure",
                         words("cough fever burn cramp rash sting headache cold")},
                        {"smell", "smells of", "does the", "smell of", "what does the", "smell of",
                         words("lemon smoke mint butter pepper soap rain apples")},
                        {"guest", "feeds the", "does the", "feed the", "what does the", "feed",
                         words("bee moth beetle snail finch bat mouse deer")},
                        {"colour", "dyes the cloth", "does the", "dye the cloth", "what colour does the",
                         "dye the cloth", words("pink purple orange golden crimson silver violet ivory")}}};
}

Topic town_topic() {
  constexpr Syllables kFirst = {"ara", "eri", "ilo", "omu", "uta", "ash", "ing", "elm", "old", "ur"};
  return {.name = "towns",
          .entities = names_from(kFirst),
          .relations = {{"place", "lies at the", "does the", "lie at the", "where does the", "lie",
                         words("bay hill lake border bridge cape valley crossing")},
                        {"trade", "sells", "does the", "sell", "what does the", "sell",
                         words("wool salt glass timber silk copper wine paper")},
                        {"ruler", "obeys the", "does the", "obey the", "whom does the", "obey",
                         words("king bishop council captain judge duke queen guild")},
                        {"feast", "dances on", "does the", "dance on", "when does the", "dance",
                         words("monday tuesday wednesday thursday friday saturday sunday holidays")},
                        {"sign", "shows a", "does the", "show a", "what does the", "show",
                         words("lion crown ship key tower wheel rose hammer")},
                        {"wall", "is built of", "is the", "built of", "what is the", "built of",
                         words("brick granite oak marble slate bamboo limestone earth")}}};
}

Topic machine_topic() {
  constexpr Syllables kFirst = {"kra", "plo", "tri", "que", "sku", "zar", "vex", "nym", "gro", "pho"};
  return {.name = "machines",
          .entities = names_from(kFirst),
          .relations = {{"metal", "is made of", "is the", "made of", "what is the", "made of",
                         words("iron brass tin lead steel zinc bronze nickel")},
                        {"fuel", "burns", "does the", "burn", "what does the", "burn",
                         words("coal oil straw wood gas tar wax alcohol")},
                        {"product", "makes", "does the", "make", "what does the", "make",
                         words("nails rope bread bottles shoes bricks candles buttons")},
                        {"room", "stands in the", "does the", "stand in the", "where does the", "stand",
                         words("cellar attic barn kitchen yard tunnel hall workshop")},
                        {"sound", "goes", "does the", "go", "how does the", "go",
                         words("bang hiss buzz click rattle hum squeak ding")},
                        {"owner", "serves the", "does the", "serve the", "whom does the", "serve",
                         words("baker smith tailor miller printer brewer potter miner")}}};
}

}  // namespace

std::vector<Topic> large_topics() { return {animal_topic(), plant_topic(), town_topic(), machine_topic()}; }

}  // namespace evenkeel::data::world
