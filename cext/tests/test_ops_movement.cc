// Shape rules of the operators that move, select and make elements.
#include "op_cases.h"

using namespace rlflow;
using namespace rlflow::testing;

// ---- movement ---------------------------------------------------------------------------------------------------------------
TEST(ops_reshape_family) {
  static const Case cases[] = {
      {"Reshape{shape=[0,-1]}", "f32[2,3,4]", "f32[2,12] @ {shape=[2,12]}"},
      {"Reshape{shape=[0,0,12,64]}", "f32[B,S,768]", "f32[B,S,12,64] @ {shape=[B,S,12,64]}"},
      {"Reshape{shape=[-1,768]}", "f32[B,S,768]", "f32[B*S,768] @ {shape=[B*S,768]}"},
      {"Reshape{shape=[B,S,12,64]}", "f32[B,S,768]", "f32[B,S,12,64]"},
      {"Reshape{shape=[B,S,768]}", "f32[B*S,768]", "! ONNX has no constant for the shape [B,S,768]"},
      {"Reshape{shape=[2,S,768]}", "f32[S*2,768]", "f32[2,S,768]"},
      {"Reshape{shape=[4,3]}", "f32[2,3]", "! Reshape: element counts differ: f32[2,3] to [4,3] (6 against 12)"},
      {"Reshape{shape=[4,-1]}", "f32[2,3]", "! 6 elements do not divide by 4"},
      {"Reshape{shape=[-1,-1]}", "f32[2,3]", "! more than one -1"},
      {"Reshape{shape=[2,-3]}", "f32[2,3]", "! negative entry"},
      {"Reshape{shape=[0,3,0]}", "f32[2,3]", "! entry 2 of the shape is 0 (copy)"},
      {"Reshape{shape=[0,-1]}", "f32[?,3,4]", "! the shape does not resolve"},
      {"Reshape{shape=[2,3]}", "f32[*]", "f32[2,3]"},
      {"Reshape{shape=[2,-1]}", "f32[*]", "! the shape does not resolve"},
      {"Reshape{shape=[]}", "f32[1,1]", "f32[] @ {shape=[]}"},
      {"Reshape{shape=[0,-1]}", "f32[0,3,4]", "f32[0,12] @ {allowzero=1, shape=[0,12]}"},
      {"Reshape{shape=[3,0],allowzero=1}", "f32[0,7]", "f32[3,0] @ {allowzero=1, shape=[3,0]}"},
      {"Reshape{shape=[2,3],allowzero=1}", "f32[6]", "f32[2,3] @ {shape=[2,3]}"},
      {"Reshape{shape=[-1]}", "i64[1,1]", "i64[1]"},
      {"Reshape{shape=[-1]}", "i64[]=[N]", "i64[1]=[N]"},
      {"Reshape", "f32[B,S,768] | i64[4]=[B,S,12,64]", "f32[B,S,12,64]"},
      {"Reshape", "f32[B,S,768] | i64[4]=[0,?,12,-1]", "f32[B,?,12,?]"},
      {"Reshape", "f32[?,S,768] | i64[2]=[0,-1]", "f32[?,S*768]"},
      {"Reshape", "f32[B,S,768] | i64[3]", "f32[?,?,?]"},
      {"Reshape", "f32[B,S,768] | i64[?]", "f32[*]"},
      {"Reshape", "f32[6] | i64[2]=[4,2]", "! element counts differ"},
      {"Flatten", "f32[N,3,4]", "f32[N,12] @ {axis=1}"},
      {"Flatten{axis=0}", "f32[N,3,4]", "f32[1,N*12]"},
      {"Flatten{axis=-1}", "f32[N,3,4]", "f32[N*3,4] @ {axis=2}"},
      {"Flatten{axis=4}", "f32[N,3,4]", "! axis 4 is out of range"},
      {"Flatten", "f32[*]", "f32[?,?]"},
      {"Squeeze{axes=[-1,0]}", "f32[1,N,1]", "f32[N] @ {axes=[0,2]}"},
      {"Squeeze", "f32[1,3,1]", "f32[3] @ {axes=[0,2]}"},
      {"Squeeze", "f32[1,N]", "f32[*]"},
      {"Squeeze{axes=[1]}", "f32[1,3]", "! axis 1 of f32[1,3] is 3, expected 1"},
      {"Squeeze{axes=[0]}", "f32[?,3]", "f32[3]"},
      {"Squeeze", "f32[1,N] | i64[1]=[0]", "f32[N]"},
      {"Squeeze", "f32[1,N] | i64[1]", "f32[?]"},
      {"Squeeze{axes=[0]}", "i64[1]=[N]", "i64[]=[N]"},
      {"Unsqueeze{axes=[-1,0]}", "f32[N]", "f32[1,N,1] @ {axes=[0,2]}"},
      {"Unsqueeze{axes=[0]}", "i64[]=[N]", "i64[1]=[N]"},
      {"Unsqueeze{axes=[0,0]}", "f32[N]", "! an axis is named twice"},
      {"Unsqueeze{axes=[3]}", "f32[N]", "! axis 3 is out of range for rank 2"},
      {"Unsqueeze", "f32[N] | i64[2]=[2,0]", "f32[1,N,1]"},
      {"Unsqueeze", "f32[N] | i64[2]", "f32[?,?,?]"},
  };
  run_cases(cases);
}

TEST(ops_transpose_concat_split) {
  static const Case cases[] = {
      {"Transpose{perm=[0,2,1]}", "f32[B,S,H]", "f32[B,H,S]"},
      {"Transpose", "f32[B,S,H]", "f32[H,S,B] @ {perm=[2,1,0]}"},
      {"Transpose{perm=[1,0]}", "f32[*]", "f32[?,?]"},
      {"Transpose{perm=[0,0]}", "f32[2,3]", "! perm=[0,0] is not a permutation"},
      {"Transpose{perm=[1,0]}", "f32[2,3,4]", "! perm=[1,0] does not fit f32[2,3,4]"},
      {"Concat{axis=-1}", "f32[2,N] | f32[2,3]", "f32[2,N+3] @ {axis=1}"},
      {"Concat{axis=0}", "f32[2,N] | f32[?,3]", "f32[?,3]"},
      {"Concat{axis=0}", "f32[2,3] | f32[2,4]", "! extents beside the axis differ"},
      {"Concat{axis=0}", "f32[2,3] | f32[2]", "! ranks differ"},
      {"Concat{axis=0}", "f32[2] | f16[2]", "! element types differ"},
      {"Concat{axis=2}", "f32[2,3] | f32[2,3]", "! axis 2 is out of range for rank 2"},
      {"Concat{axis=1}", "f32[2,3] | f32[*]", "f32[2,?]"},
      {"Concat{axis=0}", "i64[1]=[N] | i64[1] | i64[2]=[3,4]", "i64[4]=[N,?,3,4]"},
      {"Concat{axis=0}", "i64[1] | i64[1]", "i64[2]"},
      {"Concat{axis=0}", "f32[0] | f32[3]", "f32[3]"},
      {"Split{axis=1,split=[2,4]}", "f32[3,6]", "f32[3,2] | f32[3,4]"},
      {"Split{axis=-1}:2", "f32[3,6]", "f32[3,3] | f32[3,3] @ {axis=1, split=[3,3]}"},
      {"Split{axis=1,num_outputs=4}:4", "f32[3,7]", "f32[3,2] | f32[3,2] | f32[3,2] | f32[3,1] @ {axis=1, split=[2,2,2,1]}"},
      {"Split{num_outputs=2}:2", "f32[2*N]", "f32[N] | f32[N] @ {axis=0, num_outputs=2}"},
      {"Split:2", "f32[N]", "f32[?] | f32[?] @ {axis=0, num_outputs=2}"},
      {"Split{axis=1}:2", "f32[3,7]", "! 7 elements do not split into 2 parts"},
      {"Split{axis=1,split=[2,5]}", "f32[3,6]", "! does not add up to the axis"},
      {"Split{axis=1,split=[2,4]}:3", "f32[3,6]", "! makes 2 parts, but the node has 3 outputs"},
      {"Split{split=[-1,4]}", "f32[3]", "! has a negative size"},
      {"Split:2", "f32[6] | i64[2]=[2,4]", "f32[2] | f32[4]"},
      {"Split{split=[1,2]}", "i64[3]=[N,2,M]", "i64[1]=[N] | i64[2]=[2,M]"},
      {"Split{split=[0,3]}", "f32[3]", "f32[0] | f32[3]"},
  };
  run_cases(cases);
}

TEST(ops_slice) {
  static const Case cases[] = {
      {"Slice{starts=[1],ends=[3]}", "f32[5,4]", "f32[2,4] @ {axes=[0], ends=[3], starts=[1], steps=[1]}"},
      {"Slice{starts=[-2,1],ends=[9223372036854775807,-1],axes=[1,0]}", "f32[5,4]", "f32[3,2] @ {axes=[0,1], ends=[4,4], starts=[1,2], steps=[1,1]}"},
      {"Slice{starts=[0,1],ends=[100,2]}", "f32[5,4]", "f32[5,1] @ {axes=[1], ends=[2], starts=[1], steps=[1]}"},
      {"Slice{starts=[0],ends=[100]}", "f32[5,4]", "f32[5,4] @ {axes=[0], ends=[5], starts=[0], steps=[1]}"},
      {"Slice{starts=[0],ends=[9223372036854775807],axes=[1]}", "f32[5,N]", "f32[5,N] @ {axes=[0], ends=[5], starts=[0], steps=[1]}"},
      {"Slice{starts=[0],ends=[5],steps=[2]}", "f32[5]", "f32[3]"},
      {"Slice{starts=[-1],ends=[-100],steps=[-1]}", "f32[5]", "f32[5] @ {axes=[0], ends=[-6], starts=[4], steps=[-1]}"},
      {"Slice{starts=[3],ends=[0],steps=[-2]}", "f32[5]", "f32[2] @ {axes=[0], ends=[0], starts=[3], steps=[-2]}"},
      {"Slice{starts=[3],ends=[1]}", "f32[5]", "f32[0] @ {axes=[0], ends=[0], starts=[0], steps=[1]}"},
      {"Slice{starts=[7],ends=[9]}", "f32[5]", "f32[0]"},
      {"Slice{starts=[0],ends=[2]}", "f32[0,3]", "f32[0,3]"},
      {"Slice{starts=[1],ends=[9223372036854775807]}", "f32[N+2]", "f32[N+1] @ {axes=[0], ends=[9223372036854775807], starts=[1], steps=[1]}"},
      {"Slice{starts=[0],ends=[-1]}", "f32[N+1]", "f32[N]"},
      {"Slice{starts=[1],ends=[9223372036854775807]}", "f32[N]", "f32[?]"},  // N may be 0
      {"Slice{starts=[-1],ends=[9223372036854775807]}", "f32[N]", "f32[?] @ {axes=[0], ends=[9223372036854775807], starts=[-1], steps=[1]}"},
      {"Slice{starts=[0],ends=[3]}", "f32[?]", "f32[?]"},
      {"Slice{starts=[1],ends=[3],axes=[-1]}", "f32[*]", "f32[*]"},
      {"Slice{starts=[1],ends=[3],steps=[0]}", "f32[5]", "! a step is 0"},
      {"Slice{starts=[1],ends=[3,4]}", "f32[5,5]", "! entries"},
      {"Slice{starts=[1,2],ends=[3,4],axes=[0,-2]}", "f32[5,5]", "! an axis is named twice"},
      {"Slice{starts=[1],ends=[3],axes=[2]}", "f32[5,5]", "! axis 2 is out of range"},
      {"Slice{starts=[0],ends=[N]}", "f32[N]", "! ONNX has no constant for the bounds"},
      {"Slice{starts=[1],ends=[3]}", "i64[4]=[2,N,M,3]", "i64[2]=[N,M]"},
      {"Slice{starts=[0],ends=[9]}", "i64[2]=[2,N]", "i64[2]=[2,N]"},
      {"Slice{starts=[-1],ends=[-9],steps=[-1]}", "i64[2]=[2,N]", "i64[2]=[N,2]"},
      {"Slice", "f32[5,4] | i64[1]=[1] | i64[1]=[3] | i64[1]=[1]", "f32[5,2]"},
      {"Slice", "f32[5,N] | i64[1]=[0] | i64[1]=[N] | i64[1]=[1]", "f32[5,N]"},
      {"Slice", "f32[5,N] | i64[1]=[0] | i64[1]=[M] | i64[1]=[1]", "f32[5,?]"},
      {"Slice", "f32[5,4] | i64[1] | i64[1] | i64[1]=[1]", "f32[5,?]"},
      {"Slice", "f32[5,4] | i64[1] | i64[1]", "f32[?,4]"},
      {"Slice", "f32[5,4] | i64[2] | i64[2] | i64[2]", "f32[?,?]"},
      {"Slice", "i64[3]=[2,N,4] | i64[1]=[1] | i64[1]=[2] | _ | i64[1]=[1]", "i64[1]=[N]"},
  };
  run_cases(cases);
}

TEST(ops_expand_tile_pad) {
  static const Case cases[] = {
      {"Expand{shape=[2,3]}", "f32[3]", "f32[2,3] @ {shape=[2,3]}"},
      {"Expand{shape=[1,4]}", "f32[3,1]", "f32[3,4] @ {shape=[3,4]}"},
      {"Expand{shape=[1,4,1]}", "f32[N,1,D]", "f32[N,4,D] @ {shape=[1,4,1]}"},
      {"Expand{shape=[N,4]}", "f32[N,1]", "f32[N,4] @ {shape=[1,4]}"},
      {"Expand{shape=[N,4]}", "f32[1,1]", "! ONNX has no constant for the shape [N,4]"},
      {"Expand{shape=[2]}", "f32[3]", "! shapes do not broadcast"},
      {"Expand{shape=[-1]}", "f32[3]", "! no extent"},
      {"Expand", "f32[1,1] | i64[2]=[N,4]", "f32[N,4]"},
      {"Expand", "f32[3,1] | i64[3]", "f32[?,3,?]"},
      {"Expand", "i64[1]=[N] | i64[1]=[3]", "i64[3]=[N,N,N]"},
      {"Tile{repeats=[2,1]}", "f32[N,3]", "f32[N*2,3]"},
      {"Tile{repeats=[2]}", "f32[N,3]", "! repeats=[2] does not fit"},
      {"Tile{repeats=[0,2]}", "f32[?,3]", "f32[0,6]"},
      {"Tile", "f32[N,3] | i64[2]=[1,M]", "f32[N,M*3]"},
      {"Tile", "f32[N,3] | i64[2]", "f32[?,?]"},
      {"Pad{pads=[0,1,0,2]}", "f32[N,3]", "f32[N,6] @ {mode=\"constant\", pads=[0,1,0,2], value=0.0}"},
      {"Pad{pads=[1,2],axes=[-1]}", "f32[N,3]", "f32[N,6] @ {mode=\"constant\", pads=[0,1,0,2], value=0.0}"},
      {"Pad{mode=\"edge\",pads=[1,-1],value=3.0}", "f32[4]", "f32[4] @ {mode=\"edge\", pads=[1,-1], value=0.0}"},
      {"Pad{pads=[-3,-3]}", "f32[4]", "! cut off more than there is on axis 0"},
      {"Pad{pads=[1]}", "f32[4]", "! pads=[1] has 1 entries, expected 2"},
      {"Pad{mode=\"mirror\",pads=[1,1]}", "f32[4]", "! mode is \"mirror\""},
      {"Pad", "f32[N,3] | i64[4]=[0,1,0,M] | f32[]", "f32[N,M+4]"},
      {"Pad", "f32[N,3] | i64[2]=[1,1] | _ | i64[1]=[0]", "f32[N+2,3]"},
      {"Pad", "f32[N,3] | i64[4]", "f32[?,?]"},
      {"DepthToSpace{blocksize=2}", "f32[1,8,H,3]", "f32[1,2,H*2,6] @ {blocksize=2, mode=\"DCR\"}"},
      {"DepthToSpace{blocksize=3}", "f32[1,8,2,2]", "! depth 8 does not divide by 9"},
      {"DepthToSpace{blocksize=2,mode=\"RCD\"}", "f32[1,8,2,2]", "! mode is \"RCD\""},
      {"SpaceToDepth{blocksize=2}", "f32[1,C,2*H,W]", "f32[1,C*4,H,?] @ {blocksize=2, mode=\"DCR\"}"},
      {"SpaceToDepth{blocksize=2}", "f32[1,2,3,4]", "! height 3 does not divide by 2"},
  };
  run_cases(cases);
}

TEST(ops_resize) {
  static const Case cases[] = {
      {"Resize{scales=[1.0,1.0,2.0,2.0]}", "f32[1,3,H,8]", "f32[1,3,H*2,16]"},
      {"Resize{scales=[1,1,2,2]}", "f32[1,3,4,8]", "f32[1,3,8,16]"},
      {"Resize{scales=[1.0,1.0,0.6,0.6]}", "f32[1,3,4,8]", "f32[1,3,2,4]"},
      {"Resize{scales=[1.0,1.5]}", "f32[N,M]", "f32[N,?]"},
      {"Resize{sizes=[1,3,7,9],mode=\"linear\"}", "f32[1,3,4,8]", "f32[1,3,7,9]"},
      {"Resize{scales=[2.0],axes=[-1]}", "f32[N,3]",
       "f32[N,6] @ {antialias=0, coordinate_transformation_mode=\"half_pixel\", cubic_coeff_a=-0.75, exclude_outside=0, "
       "extrapolation_value=0.0, keep_aspect_ratio_policy=\"stretch\", mode=\"nearest\", nearest_mode=\"round_prefer_floor\", "
       "scales=[1.0,2.0]}"},
      {"Resize{sizes=[7,8],axes=[2,3],keep_aspect_ratio_policy=\"not_larger\"}", "f32[1,1,2,4]", "f32[1,1,4,8]"},
      {"Resize{sizes=[7,8],axes=[2,3],keep_aspect_ratio_policy=\"not_smaller\"}", "f32[1,1,2,4]", "f32[1,1,7,14]"},
      {"Resize", "f32[1,2]", "! it has neither scales nor sizes"},
      {"Resize{scales=[1.0]}", "f32[1,2]", "! scales has 1 entries, expected 2"},
      {"Resize{scales=[0.0,1.0]}", "f32[1,2]", "! a scale is 0.0"},
      {"Resize{mode=\"area\",scales=[1.0]}", "f32[2]", "! mode is \"area\""},
      {"Resize", "f32[1,2] | _ | f32[2]#[1.0,3.0]", "f32[1,6]"},
      {"Resize", "f32[1,2] | _ | _ | i64[2]=[1,N]", "f32[1,N]"},
      {"Resize", "f32[1,2] | f32[0] | f32[2]", "f32[?,?]"},
  };
  run_cases(cases);
}

// ---- indexing, shapes, quantisation -----------------------------------------------------------------------------------------
TEST(ops_indexing) {
  static const Case cases[] = {
      {"Gather{axis=1}", "f32[2,N,4] | i64[5,6]", "f32[2,5,6,4]"},
      {"Gather{axis=-1}", "f32[2,N] | i64[]", "f32[2] @ {axis=1}"},
      {"Gather", "i64[3]=[B,S,768] | i64[]=[1]", "i64[]=[S]"},
      {"Gather", "i64[3]=[B,S,768] | i64[2]=[-1,0]", "i64[2]=[768,B]"},
      {"Gather", "i64[3]=[B,S,768] | i64[]=[3]", "! index 3 is out of range for 3 elements"},
      {"Gather", "f32[*] | i64[]", "f32[*]"},
      {"Gather", "f32[2] | f32[]", "! Gather: input 1 is f32[], expected i32 or i64"},
      {"Gather{axis=2}", "f32[2,3] | i64[]", "! axis 2 is out of range"},
      {"GatherElements{axis=-1}", "f32[2,3] | i64[2,5]", "f32[2,5] @ {axis=1}"},
      {"GatherElements", "f32[2,3] | i64[2]", "! ranks differ"},
      {"GatherND", "f32[2,3,4] | i64[5,2]", "f32[5,4]"},
      {"GatherND{batch_dims=1}", "f32[2,3,4] | i64[2,1]", "f32[2,4]"},
      {"GatherND", "f32[2,3] | i64[5,3]", "! indices address 3 axes of rank 2"},
      {"GatherND", "f32[2,3] | i64[5,?]", "f32[*]"},
      {"ScatterElements", "f32[3,4] | i64[2,4] | f32[2,4]", "f32[3,4] @ {axis=0, reduction=\"none\"}"},
      {"ScatterElements", "f32[3,4] | i64[2,4] | f32[3,4]", "! extents of indices and updates differ"},
      {"ScatterND", "f32[3,4] | i64[2,1] | f32[2,4]", "f32[3,4]"},
      {"ScatterND", "f32[3,4] | i64[2,1] | f32[2,5]", "! extents of updates and indexed data differ"},
      {"ScatterND{reduction=\"avg\"}", "f32[3] | i64[2,1] | f32[2]", "! reduction is \"avg\""},
      {"OneHot", "i64[2,N] | i64[]=[10] | f32[2]", "f32[2,N,10] @ {axis=2}"},
      {"OneHot", "i64[2] | i64[]=[0] | f32[2]", "! the depth is 0"},
      {"OneHot{axis=0}", "i64[2,N] | i64[] | f32[2]", "f32[?,2,N]"},
      {"NonZero", "f32[2,3]", "i64[2,?]"},
      {"Compress{axis=1}", "f32[2,3] | bool[3]", "f32[2,?]"},
      {"Compress", "f32[2,3] | bool[3]", "f32[?]"},
      {"Trilu", "f32[2,3] | i64[]", "f32[2,3] @ {upper=1}"},
      {"Trilu", "f32[3]", "! expected rank 2 or more"},
      {"ReverseSequence", "f32[4,2] | i64[2]", "f32[4,2]"},
  };
  run_cases(cases);
}

TEST(ops_shapes_as_values) {
  static const Case cases[] = {
      {"Shape", "f32[B,S,768]", "i64[3]=[B,S,768] @ {start=0}"},
      {"Shape{start=-2,end=-1}", "f32[B,S,768]", "i64[1]=[S] @ {end=2, start=1}"},
      {"Shape{start=1,end=99}", "f32[B,S,768]", "i64[2]=[S,768] @ {start=1}"},
      {"Shape{start=2,end=1}", "f32[B,S,768]", "i64[0]=[]"},
      {"Shape", "f32[?,?]", "i64[2]"},
      {"Shape", "f32[]", "i64[0]=[]"},
      {"Shape", "f32[*]", "i64[?]"},
      {"Size", "f32[B,S,8]", "i64[]=[B*S*8]"},
      {"Size", "f32[?,0]", "i64[]=[0]"},
      {"Size", "f32[*]", "i64[]"},
      {"ConstantOfShape", "i64[2]=[N,3]", "f32[N,3] @ {dtype=1, value=0.0}"},
      {"ConstantOfShape{dtype=7,value=5.0}", "i64[1]=[3]", "i64[3]=[5,5,5]"},
      {"ConstantOfShape{dtype=7}", "i64[0]=[]", "i64[]=[0]"},
      {"ConstantOfShape{dtype=9,value=1.0}", "i64[3]", "bool[?,?,?]"},
      {"ConstantOfShape{dtype=7,value=0.5}", "i64[3]", "! expected an integer"},
      {"ConstantOfShape", "i64[1]=[-3]", "! has a negative entry"},
      {"ConstantOfShape", "i64[2,2]", "! expected rank 1"},
      {"Range", "i64[]=[0] | i64[]=[N] | i64[]=[1]", "i64[N]"},
      {"Range", "i64[]=[0] | i64[]=[2*N+1] | i64[]=[2]", "i64[N+1]"},
      {"Range", "i64[]=[2] | i64[]=[9] | i64[]=[3]", "i64[3]=[2,5,8]"},
      {"Range", "i64[]=[5] | i64[]=[2] | i64[]=[-1]", "i64[3]=[5,4,3]"},
      {"Range", "i64[]=[5] | i64[]=[2] | i64[]=[1]", "i64[0]=[]"},
      {"Range", "i64[]=[1] | i64[]=[N] | i64[]=[1]", "i64[?]"},
      {"Range", "f32[]#0.0 | f32[]#1.0 | f32[]#0.25", "f32[4]"},
      {"Range", "f32[] | f32[] | f32[]", "f32[?]"},
      {"Range", "i64[]=[1] | i64[]=[5] | i64[]=[0]", "! delta is 0"},
      {"EyeLike{dtype=7}", "f32[N,3]", "i64[N,3]"},
      {"EyeLike", "f32[N]", "! expected rank 2"},
  };
  run_cases(cases);
}

TEST(ops_quantisation) {
  static const Case cases[] = {
      {"QuantizeLinear", "f32[2,3] | f32[] | i8[]", "i8[2,3]"},
      {"QuantizeLinear", "f32[2,3] | f32[]", "u8[2,3]"},
      {"QuantizeLinear{output_dtype=3}", "f32[2,3] | f32[] | u8[]", "! output_dtype is i8, but the zero point is u8[]"},
      {"QuantizeLinear{axis=-1}", "f32[2,3] | f32[3] | u8[3]", "u8[2,3] @ {axis=1, block_size=0, output_dtype=0, precision=0, saturate=1}"},
      {"QuantizeLinear", "f32[2,3] | f32[4] | u8[4]", "! length of the scale and the axis differ"},
      {"DequantizeLinear", "u8[2,N] | f32[] | u8[]", "f32[2,N]"},
      {"DequantizeLinear", "u8[2,N] | f16[]", "f16[2,N]"},
      {"DequantizeLinear", "u8[2,N] | f32[] | i8[]", "! element types differ"},
      {"DynamicQuantizeLinear", "f32[2,N]", "u8[2,N] | f32[] | u8[]"},
      {"QLinearConv", "u8[1,2,6] | f32[] | u8[] | i8[4,2,3] | f32[] | i8[] | f32[] | u8[] | i32[4]", "u8[1,4,4]"},
      {"QLinearConv", "u8[1,3,6] | f32[] | u8[] | i8[4,2,3] | f32[] | i8[] | f32[] | u8[]", "! channels differ: u8[1,3,6] x i8[4,2,3]"},
      {"QLinearMatMul", "u8[2,3] | f32[] | u8[] | u8[3,4] | f32[] | u8[] | f32[] | i8[]", "i8[2,4]"},
      {"QLinearMatMul", "u8[2,3] | f32[] | u8[] | u8[5,4] | f32[] | u8[] | f32[] | i8[]", "! inner dimensions differ: u8[2,3] x u8[5,4]"},
  };
  run_cases(cases);
}
