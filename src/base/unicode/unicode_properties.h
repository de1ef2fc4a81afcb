/// \file  Lists names of scripts and binary properties, and the code points that Unicode 15.0, 15.1 and 16.0 added to
/// them. They are needed because PCRE2 10.42 (Debian 12) knows Unicode 14 only. The lists were found by comparing with
/// the `tokenizers` library for every code point; tests/parity/test_tokenizer_patterns_v5.py repeats the comparison.
#pragma once

#include <cstdint>
#include <string_view>

namespace evenkeel::unicode {

inline constexpr std::string_view kScripts[] = {
    // clang-format off
    "Adlam", "Ahom", "Anatolian_Hieroglyphs", "Arabic", "Armenian", "Avestan", "Balinese", "Bamum",
    "Bassa_Vah", "Batak", "Bengali", "Bhaiksuki", "Bopomofo", "Brahmi", "Braille", "Buginese", "Buhid",
    "Canadian_Aboriginal", "Carian", "Caucasian_Albanian", "Chakma", "Cham", "Cherokee", "Chorasmian",
    "Common", "Coptic", "Cuneiform", "Cypriot", "Cypro_Minoan", "Cyrillic", "Deseret", "Devanagari",
    "Dives_Akuru", "Dogra", "Duployan", "Egyptian_Hieroglyphs", "Elbasan", "Elymaic", "Ethiopic",
    "Garay", "Georgian", "Glagolitic", "Gothic", "Grantha", "Greek", "Gujarati", "Gunjala_Gondi",
    "Gurmukhi", "Gurung_Khema", "Han", "Hangul", "Hanifi_Rohingya", "Hanunoo", "Hatran", "Hebrew",
    "Hiragana", "Imperial_Aramaic", "Inherited", "Inscriptional_Pahlavi", "Inscriptional_Parthian",
    "Javanese", "Kaithi", "Kannada", "Katakana", "Kawi", "Kayah_Li", "Kharoshthi",
    "Khitan_Small_Script", "Khmer", "Khojki", "Khudawadi", "Kirat_Rai", "Lao", "Latin", "Lepcha",
    "Limbu", "Linear_A", "Linear_B", "Lisu", "Lycian", "Lydian", "Mahajani", "Makasar", "Malayalam",
    "Mandaic", "Manichaean", "Marchen", "Masaram_Gondi", "Medefaidrin", "Meetei_Mayek", "Mende_Kikakui",
    "Meroitic_Cursive", "Meroitic_Hieroglyphs", "Miao", "Modi", "Mongolian", "Mro", "Multani",
    "Myanmar", "Nabataean", "Nag_Mundari", "Nandinagari", "New_Tai_Lue", "Newa", "Nko", "Nushu",
    "Nyiakeng_Puachue_Hmong", "Ogham", "Ol_Chiki", "Ol_Onal", "Old_Hungarian", "Old_Italic",
    "Old_North_Arabian", "Old_Permic", "Old_Persian", "Old_Sogdian", "Old_South_Arabian", "Old_Turkic",
    "Old_Uyghur", "Oriya", "Osage", "Osmanya", "Pahawh_Hmong", "Palmyrene", "Pau_Cin_Hau", "Phags_Pa",
    "Phoenician", "Psalter_Pahlavi", "Rejang", "Runic", "Samaritan", "Saurashtra", "Sharada", "Shavian",
    "Siddham", "SignWriting", "Sinhala", "Sogdian", "Sora_Sompeng", "Soyombo", "Sundanese", "Sunuwar",
    "Syloti_Nagri", "Syriac", "Tagalog", "Tagbanwa", "Tai_Le", "Tai_Tham", "Tai_Viet", "Takri", "Tamil",
    "Tangsa", "Tangut", "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Todhri", "Toto",
    "Tulu_Tigalari", "Ugaritic", "Vai", "Vithkuqi", "Wancho", "Warang_Citi", "Yezidi", "Yi",
    "Zanabazar_Square",  // clang-format on
};

inline constexpr std::string_view kBinaryProperties[] = {
    // clang-format off
    "Alphabetic", "ASCII_Hex_Digit", "Cased", "Dash", "Default_Ignorable_Code_Point", "Emoji",
    "Emoji_Component", "Emoji_Modifier", "Emoji_Modifier_Base", "Emoji_Presentation",
    "Extended_Pictographic", "Hex_Digit", "Ideographic", "Join_Control", "Lowercase", "Math",
    "Noncharacter_Code_Point", "Quotation_Mark", "Regional_Indicator", "Unified_Ideograph", "Uppercase",
    "Variation_Selector", "White_Space",  // clang-format on
};

struct PropertyAlias {
  std::string_view alias, name;
};

/// Short names of scripts (the four letters of ISO 15924) and of binary properties.
inline constexpr PropertyAlias kPropertyAliases[] = {
    // clang-format off
    {"Adlm", "Adlam"}, {"Aghb", "Caucasian_Albanian"}, {"Arab", "Arabic"},
    {"Armi", "Imperial_Aramaic"}, {"Armn", "Armenian"}, {"Avst", "Avestan"}, {"Bali", "Balinese"},
    {"Bamu", "Bamum"}, {"Bass", "Bassa_Vah"}, {"Batk", "Batak"}, {"Beng", "Bengali"},
    {"Bhks", "Bhaiksuki"}, {"Bopo", "Bopomofo"}, {"Brah", "Brahmi"}, {"Brai", "Braille"},
    {"Bugi", "Buginese"}, {"Buhd", "Buhid"}, {"Cakm", "Chakma"}, {"Cans", "Canadian_Aboriginal"},
    {"Cari", "Carian"}, {"Cher", "Cherokee"}, {"Chrs", "Chorasmian"}, {"Copt", "Coptic"},
    {"Cpmn", "Cypro_Minoan"}, {"Cprt", "Cypriot"}, {"Cyrl", "Cyrillic"}, {"Deva", "Devanagari"},
    {"Diak", "Dives_Akuru"}, {"Dogr", "Dogra"}, {"Dsrt", "Deseret"}, {"Dupl", "Duployan"},
    {"Egyp", "Egyptian_Hieroglyphs"}, {"Elba", "Elbasan"}, {"Elym", "Elymaic"},
    {"Ethi", "Ethiopic"}, {"Gara", "Garay"}, {"Geor", "Georgian"}, {"Glag", "Glagolitic"},
    {"Gong", "Gunjala_Gondi"}, {"Gonm", "Masaram_Gondi"}, {"Goth", "Gothic"}, {"Gran", "Grantha"},
    {"Grek", "Greek"}, {"Gujr", "Gujarati"}, {"Gukh", "Gurung_Khema"}, {"Guru", "Gurmukhi"},
    {"Hang", "Hangul"}, {"Hani", "Han"}, {"Hano", "Hanunoo"}, {"Hatr", "Hatran"},
    {"Hebr", "Hebrew"}, {"Hira", "Hiragana"}, {"Hluw", "Anatolian_Hieroglyphs"},
    {"Hmng", "Pahawh_Hmong"}, {"Hmnp", "Nyiakeng_Puachue_Hmong"}, {"Hung", "Old_Hungarian"},
    {"Ital", "Old_Italic"}, {"Java", "Javanese"}, {"Kali", "Kayah_Li"}, {"Kana", "Katakana"},
    {"Khar", "Kharoshthi"}, {"Khmr", "Khmer"}, {"Khoj", "Khojki"}, {"Kits", "Khitan_Small_Script"},
    {"Knda", "Kannada"}, {"Krai", "Kirat_Rai"}, {"Kthi", "Kaithi"}, {"Lana", "Tai_Tham"},
    {"Laoo", "Lao"}, {"Latn", "Latin"}, {"Lepc", "Lepcha"}, {"Limb", "Limbu"}, {"Lina", "Linear_A"},
    {"Linb", "Linear_B"}, {"Lyci", "Lycian"}, {"Lydi", "Lydian"}, {"Mahj", "Mahajani"},
    {"Maka", "Makasar"}, {"Mand", "Mandaic"}, {"Mani", "Manichaean"}, {"Marc", "Marchen"},
    {"Medf", "Medefaidrin"}, {"Mend", "Mende_Kikakui"}, {"Merc", "Meroitic_Cursive"},
    {"Mero", "Meroitic_Hieroglyphs"}, {"Mlym", "Malayalam"}, {"Mong", "Mongolian"}, {"Mroo", "Mro"},
    {"Mtei", "Meetei_Mayek"}, {"Mult", "Multani"}, {"Mymr", "Myanmar"}, {"Nagm", "Nag_Mundari"},
    {"Nand", "Nandinagari"}, {"Narb", "Old_North_Arabian"}, {"Nbat", "Nabataean"}, {"Nkoo", "Nko"},
    {"Nshu", "Nushu"}, {"Ogam", "Ogham"}, {"Olck", "Ol_Chiki"}, {"Onao", "Ol_Onal"},
    {"Orkh", "Old_Turkic"}, {"Orya", "Oriya"}, {"Osge", "Osage"}, {"Osma", "Osmanya"},
    {"Ougr", "Old_Uyghur"}, {"Palm", "Palmyrene"}, {"Pauc", "Pau_Cin_Hau"}, {"Perm", "Old_Permic"},
    {"Phag", "Phags_Pa"}, {"Phli", "Inscriptional_Pahlavi"}, {"Phlp", "Psalter_Pahlavi"},
    {"Phnx", "Phoenician"}, {"Plrd", "Miao"}, {"Prti", "Inscriptional_Parthian"},
    {"Qaac", "Coptic"}, {"Qaai", "Inherited"}, {"Rjng", "Rejang"}, {"Rohg", "Hanifi_Rohingya"},
    {"Runr", "Runic"}, {"Samr", "Samaritan"}, {"Sarb", "Old_South_Arabian"}, {"Saur", "Saurashtra"},
    {"Sgnw", "SignWriting"}, {"Shaw", "Shavian"}, {"Shrd", "Sharada"}, {"Sidd", "Siddham"},
    {"Sind", "Khudawadi"}, {"Sinh", "Sinhala"}, {"Sogd", "Sogdian"}, {"Sogo", "Old_Sogdian"},
    {"Sora", "Sora_Sompeng"}, {"Soyo", "Soyombo"}, {"Sund", "Sundanese"}, {"Sunu", "Sunuwar"},
    {"Sylo", "Syloti_Nagri"}, {"Syrc", "Syriac"}, {"Tagb", "Tagbanwa"}, {"Takr", "Takri"},
    {"Tale", "Tai_Le"}, {"Talu", "New_Tai_Lue"}, {"Taml", "Tamil"}, {"Tang", "Tangut"},
    {"Tavt", "Tai_Viet"}, {"Telu", "Telugu"}, {"Tfng", "Tifinagh"}, {"Tglg", "Tagalog"},
    {"Thaa", "Thaana"}, {"Tibt", "Tibetan"}, {"Tirh", "Tirhuta"}, {"Tnsa", "Tangsa"},
    {"Todr", "Todhri"}, {"Tutg", "Tulu_Tigalari"}, {"Ugar", "Ugaritic"}, {"Vaii", "Vai"},
    {"Vith", "Vithkuqi"}, {"Wara", "Warang_Citi"}, {"Wcho", "Wancho"}, {"Xpeo", "Old_Persian"},
    {"Xsux", "Cuneiform"}, {"Yezi", "Yezidi"}, {"Yiii", "Yi"}, {"Zanb", "Zanabazar_Square"},
    {"Zinh", "Inherited"}, {"Zyyy", "Common"}, {"AHex", "ASCII_Hex_Digit"},
    {"DI", "Default_Ignorable_Code_Point"}, {"EBase", "Emoji_Modifier_Base"},
    {"EComp", "Emoji_Component"}, {"EMod", "Emoji_Modifier"}, {"EPres", "Emoji_Presentation"},
    {"ExtPict", "Extended_Pictographic"}, {"Hex", "Hex_Digit"}, {"Ideo", "Ideographic"},
    {"Join_C", "Join_Control"}, {"NChar", "Noncharacter_Code_Point"}, {"QMark", "Quotation_Mark"},
    {"RI", "Regional_Indicator"}, {"UIdeo", "Unified_Ideograph"}, {"VS", "Variation_Selector"},
    {"WSpace", "White_Space"},  // clang-format on
};

struct PropertyAddition {
  std::string_view property;
  uint32_t first, last;
};

/// Code points that Unicode added to scripts and properties after version 14.
inline constexpr PropertyAddition kAddedSince14[] = {
    // clang-format off
    {"Arabic", 0x00897, 0x00897}, {"Arabic", 0x10EC2, 0x10EC4}, {"Arabic", 0x10EFC, 0x10EFF},
    {"Balinese", 0x01B4E, 0x01B4F}, {"Balinese", 0x01B7F, 0x01B7F}, {"Common", 0x02427, 0x02429},
    {"Common", 0x02FFC, 0x02FFF}, {"Common", 0x031E4, 0x031E5}, {"Common", 0x031EF, 0x031EF},
    {"Common", 0x1CC00, 0x1CCF9}, {"Common", 0x1CD00, 0x1CEB3}, {"Common", 0x1D2C0, 0x1D2D3},
    {"Common", 0x1F6DC, 0x1F6DC}, {"Common", 0x1F774, 0x1F776}, {"Common", 0x1F77B, 0x1F77F},
    {"Common", 0x1F7D9, 0x1F7D9}, {"Common", 0x1F8B2, 0x1F8BB}, {"Common", 0x1F8C0, 0x1F8C1},
    {"Common", 0x1FA75, 0x1FA77}, {"Common", 0x1FA87, 0x1FA89}, {"Common", 0x1FA8F, 0x1FA8F},
    {"Common", 0x1FAAD, 0x1FAAF}, {"Common", 0x1FABB, 0x1FABF}, {"Common", 0x1FAC6, 0x1FAC6},
    {"Common", 0x1FACE, 0x1FACF}, {"Common", 0x1FADA, 0x1FADC}, {"Common", 0x1FADF, 0x1FADF},
    {"Common", 0x1FAE8, 0x1FAE9}, {"Common", 0x1FAF7, 0x1FAF8}, {"Common", 0x1FBCB, 0x1FBEF},
    {"Cyrillic", 0x01C89, 0x01C8A}, {"Cyrillic", 0x1E030, 0x1E06D}, {"Cyrillic", 0x1E08F, 0x1E08F},
    {"Devanagari", 0x11B00, 0x11B09}, {"Egyptian_Hieroglyphs", 0x1342F, 0x1342F},
    {"Egyptian_Hieroglyphs", 0x13439, 0x13455}, {"Egyptian_Hieroglyphs", 0x13460, 0x143FA},
    {"Garay", 0x10D40, 0x10D65}, {"Garay", 0x10D69, 0x10D85}, {"Garay", 0x10D8E, 0x10D8F},
    {"Gurung_Khema", 0x16100, 0x16139}, {"Han", 0x2B739, 0x2B739}, {"Han", 0x2EBF0, 0x2EE5D},
    {"Han", 0x31350, 0x323AF}, {"Hiragana", 0x1B132, 0x1B132}, {"Kannada", 0x00CF3, 0x00CF3},
    {"Katakana", 0x1B155, 0x1B155}, {"Kawi", 0x11F00, 0x11F10}, {"Kawi", 0x11F12, 0x11F3A},
    {"Kawi", 0x11F3E, 0x11F5A}, {"Khitan_Small_Script", 0x18CFF, 0x18CFF}, {"Khojki", 0x1123F, 0x11241},
    {"Kirat_Rai", 0x16D40, 0x16D79}, {"Lao", 0x00ECE, 0x00ECE}, {"Latin", 0x0A7CB, 0x0A7CD},
    {"Latin", 0x0A7DA, 0x0A7DC}, {"Latin", 0x1DF25, 0x1DF2A}, {"Myanmar", 0x116D0, 0x116E3},
    {"Nag_Mundari", 0x1E4D0, 0x1E4F9}, {"Ol_Onal", 0x1E5D0, 0x1E5FA}, {"Ol_Onal", 0x1E5FF, 0x1E5FF},
    {"Sunuwar", 0x11BC0, 0x11BE1}, {"Sunuwar", 0x11BF0, 0x11BF9}, {"Todhri", 0x105C0, 0x105F3},
    {"Tulu_Tigalari", 0x11380, 0x11389}, {"Tulu_Tigalari", 0x1138B, 0x1138B},
    {"Tulu_Tigalari", 0x1138E, 0x1138E}, {"Tulu_Tigalari", 0x11390, 0x113B5},
    {"Tulu_Tigalari", 0x113B7, 0x113C0}, {"Tulu_Tigalari", 0x113C2, 0x113C2},
    {"Tulu_Tigalari", 0x113C5, 0x113C5}, {"Tulu_Tigalari", 0x113C7, 0x113CA},
    {"Tulu_Tigalari", 0x113CC, 0x113D5}, {"Tulu_Tigalari", 0x113D7, 0x113D8},
    {"Tulu_Tigalari", 0x113E1, 0x113E2}, {"Alphabetic", 0x00363, 0x0036F},
    {"Alphabetic", 0x00897, 0x00897}, {"Alphabetic", 0x00C04, 0x00C04},
    {"Alphabetic", 0x00CF3, 0x00CF3}, {"Alphabetic", 0x00F82, 0x00F83},
    {"Alphabetic", 0x01C89, 0x01C8A}, {"Alphabetic", 0x01DD3, 0x01DE6},
    {"Alphabetic", 0x0A7CB, 0x0A7CD}, {"Alphabetic", 0x0A7DA, 0x0A7DC},
    {"Alphabetic", 0x105C0, 0x105F3}, {"Alphabetic", 0x10D4A, 0x10D65},
    {"Alphabetic", 0x10D69, 0x10D69}, {"Alphabetic", 0x10D6F, 0x10D85},
    {"Alphabetic", 0x10EC2, 0x10EC4}, {"Alphabetic", 0x10EFC, 0x10EFC},
    {"Alphabetic", 0x11080, 0x11081}, {"Alphabetic", 0x1123F, 0x11241},
    {"Alphabetic", 0x11380, 0x11389}, {"Alphabetic", 0x1138B, 0x1138B},
    {"Alphabetic", 0x1138E, 0x1138E}, {"Alphabetic", 0x11390, 0x113B5},
    {"Alphabetic", 0x113B7, 0x113C0}, {"Alphabetic", 0x113C2, 0x113C2},
    {"Alphabetic", 0x113C5, 0x113C5}, {"Alphabetic", 0x113C7, 0x113CA},
    {"Alphabetic", 0x113CC, 0x113CD}, {"Alphabetic", 0x113D1, 0x113D1},
    {"Alphabetic", 0x113D3, 0x113D3}, {"Alphabetic", 0x11BC0, 0x11BE0},
    {"Alphabetic", 0x11F00, 0x11F10}, {"Alphabetic", 0x11F12, 0x11F3A},
    {"Alphabetic", 0x11F3E, 0x11F40}, {"Alphabetic", 0x1342F, 0x1342F},
    {"Alphabetic", 0x13441, 0x13446}, {"Alphabetic", 0x13460, 0x143FA},
    {"Alphabetic", 0x16100, 0x1612E}, {"Alphabetic", 0x16D40, 0x16D6C},
    {"Alphabetic", 0x18CFF, 0x18CFF}, {"Alphabetic", 0x1B132, 0x1B132},
    {"Alphabetic", 0x1B155, 0x1B155}, {"Alphabetic", 0x1DF25, 0x1DF2A},
    {"Alphabetic", 0x1E030, 0x1E06D}, {"Alphabetic", 0x1E08F, 0x1E08F},
    {"Alphabetic", 0x1E4D0, 0x1E4EB}, {"Alphabetic", 0x1E5D0, 0x1E5ED},
    {"Alphabetic", 0x1E5F0, 0x1E5F0}, {"Alphabetic", 0x2B739, 0x2B739},
    {"Alphabetic", 0x2EBF0, 0x2EE5D}, {"Alphabetic", 0x31350, 0x323AF}, {"Cased", 0x010FC, 0x010FC},
    {"Cased", 0x01C89, 0x01C8A}, {"Cased", 0x0A7CB, 0x0A7CD}, {"Cased", 0x0A7DA, 0x0A7DC},
    {"Cased", 0x0A7F2, 0x0A7F4}, {"Cased", 0x0AB69, 0x0AB69}, {"Cased", 0x10D50, 0x10D65},
    {"Cased", 0x10D70, 0x10D85}, {"Cased", 0x1DF25, 0x1DF2A}, {"Cased", 0x1E030, 0x1E06D},
    {"Dash", 0x10D6E, 0x10D6E}, {"Emoji", 0x1F6DC, 0x1F6DC}, {"Emoji", 0x1FA75, 0x1FA77},
    {"Emoji", 0x1FA87, 0x1FA89}, {"Emoji", 0x1FA8F, 0x1FA8F}, {"Emoji", 0x1FAAD, 0x1FAAF},
    {"Emoji", 0x1FABB, 0x1FABF}, {"Emoji", 0x1FAC6, 0x1FAC6}, {"Emoji", 0x1FACE, 0x1FACF},
    {"Emoji", 0x1FADA, 0x1FADC}, {"Emoji", 0x1FADF, 0x1FADF}, {"Emoji", 0x1FAE8, 0x1FAE9},
    {"Emoji", 0x1FAF7, 0x1FAF8}, {"Emoji_Modifier_Base", 0x1FAF7, 0x1FAF8},
    {"Emoji_Presentation", 0x1F6DC, 0x1F6DC}, {"Emoji_Presentation", 0x1FA75, 0x1FA77},
    {"Emoji_Presentation", 0x1FA87, 0x1FA89}, {"Emoji_Presentation", 0x1FA8F, 0x1FA8F},
    {"Emoji_Presentation", 0x1FAAD, 0x1FAAF}, {"Emoji_Presentation", 0x1FABB, 0x1FABF},
    {"Emoji_Presentation", 0x1FAC6, 0x1FAC6}, {"Emoji_Presentation", 0x1FACE, 0x1FACF},
    {"Emoji_Presentation", 0x1FADA, 0x1FADC}, {"Emoji_Presentation", 0x1FADF, 0x1FADF},
    {"Emoji_Presentation", 0x1FAE8, 0x1FAE9}, {"Emoji_Presentation", 0x1FAF7, 0x1FAF8},
    {"Ideographic", 0x18CFF, 0x18CFF}, {"Ideographic", 0x2B739, 0x2B739},
    {"Ideographic", 0x2EBF0, 0x2EE5D}, {"Ideographic", 0x31350, 0x323AF},
    {"Lowercase", 0x010FC, 0x010FC}, {"Lowercase", 0x01C8A, 0x01C8A}, {"Lowercase", 0x0A7CD, 0x0A7CD},
    {"Lowercase", 0x0A7DB, 0x0A7DB}, {"Lowercase", 0x0A7F2, 0x0A7F4}, {"Lowercase", 0x0AB69, 0x0AB69},
    {"Lowercase", 0x10D70, 0x10D85}, {"Lowercase", 0x1DF25, 0x1DF2A}, {"Lowercase", 0x1E030, 0x1E06D},
    {"Math", 0x10D8E, 0x10D8F}, {"Unified_Ideograph", 0x2B739, 0x2B739},
    {"Unified_Ideograph", 0x2EBF0, 0x2EE5D}, {"Unified_Ideograph", 0x31350, 0x323AF},
    {"Uppercase", 0x01C89, 0x01C89}, {"Uppercase", 0x0A7CB, 0x0A7CC}, {"Uppercase", 0x0A7DA, 0x0A7DA},
    {"Uppercase", 0x0A7DC, 0x0A7DC}, {"Uppercase", 0x10D50, 0x10D65},  // clang-format on
};

}  // namespace evenkeel::unicode
