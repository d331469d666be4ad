import{a as i,b as m}from"./chunk-JPKWMRZ3.js";import{C as t}from"./chunk-ZXULV7DP.js";function o({iso:e}){return t("time",{dateTime:e,title:m(e),children:i(e)})}export{o as a};
