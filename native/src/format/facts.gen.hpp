// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace partc {

inline constexpr std::uint64_t VERSION = 2;
inline constexpr std::string_view CLIENT = "client";
inline constexpr std::uint64_t FRAME_LIMIT = 65536;
inline constexpr std::uint64_t LONGEST_CAUSE = 300;
inline constexpr std::string_view SAMPLE = "sample";
inline constexpr std::uint64_t WINDOW_STEPS = 32;
inline constexpr std::uint64_t KEPT_CHANGES = 8;
inline constexpr std::string_view BUILD_FORMAT = "partc-build/2";
inline constexpr std::string_view BUILD_FILE = "build.json";
inline constexpr std::string_view PLACEMENT_FORMAT = "partc-placement/2";
inline constexpr std::string_view PLACEMENT_FILE = "placement.json";
inline constexpr std::string_view KERNELS_FORMAT = "partc-kernels/1";
inline constexpr std::string_view KERNELS_FILE = "kernels.json";
inline constexpr std::string_view GPU_DIGEST_NAME = "partc_kernels";
inline constexpr std::uint64_t ALIGNMENT = 64;
inline constexpr std::uint64_t PANEL = 16;
inline constexpr std::uint64_t MOST_LEVELS = 64;
inline constexpr std::string_view INPUT_IDS = "input_ids";
inline constexpr std::string_view SOURCE_IDS = "source_ids";
inline constexpr std::string_view SOURCE_LENGTH = "source_length";
inline constexpr std::string_view SOURCE = "source";
inline constexpr std::uint64_t STRANGERS_EVERY_S = 60;
inline constexpr std::string_view ONCE = "_once";

inline constexpr std::array<std::string_view, 10> TASKS{{
    "text-generation",
    "text2text-generation",
    "automatic-speech-recognition",
    "image-text-to-text",
    "audio-text-to-text",
    "text-classification",
    "feature-extraction",
    "image-classification",
    "audio-classification",
    "graph",
}};

inline constexpr std::array<std::string_view, 5> GENERATING{{
    "text-generation",
    "text2text-generation",
    "automatic-speech-recognition",
    "image-text-to-text",
    "audio-text-to-text",
}};

/// One row of the table of element types.
struct ElementType {
  std::string_view name, held, safetensors;
  std::uint64_t bytes;
  int onnx;  // the number of onnx.TensorProto.DataType
};

inline constexpr std::array<ElementType, 13> ELEMENT_TYPES{{
    {"float64", "float64", "F64", 8, 11},
    {"float32", "float32", "F32", 4, 1},
    {"float16", "float16", "F16", 2, 10},
    {"bfloat16", "uint16", "BF16", 2, 16},
    {"int64", "int64", "I64", 8, 7},
    {"int32", "int32", "I32", 4, 6},
    {"int16", "int16", "I16", 2, 5},
    {"int8", "int8", "I8", 1, 3},
    {"uint64", "uint64", "U64", 8, 13},
    {"uint32", "uint32", "U32", 4, 12},
    {"uint16", "uint16", "U16", 2, 4},
    {"uint8", "uint8", "U8", 1, 2},
    {"bool", "bool", "BOOL", 1, 9},
}};

}  // namespace partc
